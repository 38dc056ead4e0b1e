"""What does not come at once: the best t and K, closed forms, and more rounds, computed in a process of its own."""

import contextlib
import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

import numpy as np

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import ClosedForm
from vflsim.api.timing import Analyses
from vflsim.errors import VflsimError
from vflsim.exploring.figures import finite
from vflsim.results.store.closed_forms import curves_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.closed_forms import analyse
from vflsim.tables import shown

_POINTS = 240
"""Most points of a curve; those between are left out evenly."""


def closed_forms(scenario: Scenario, data: ScenarioData, name: str) -> dict[str, Any]:
    """Return what ``vflsim analyze`` finds of a protocol: its ``rows``, and the ``curve`` of a round's duration.

    ``rows`` are those of ``vflsim.analyze(…).frame`` (None where there is no number). The curve has the times ``x``
    (seconds) and the distribution function between ``lower`` and ``upper``, equal where it is known; None without.
    """
    analysis = analyse(scenario, name, data.of(scenario.training_of(name)))
    frame = Analyses(scenario, data, {name: analysis}).frame
    rows = [finite({str(key): _plain(value) for key, value in row.items()}) for row in frame.to_dict("records")]
    curve = None
    if isinstance(analysis.round, ClosedForm) and analysis.round.law is not None:
        ((*_, x, lower, upper),) = curves_of(name, [analysis.round])
        some = np.unique(np.linspace(0, len(x) - 1, min(_POINTS, len(x))).astype(int))
        curve = {"x": x[some].tolist(), "lower": lower[some].tolist(), "upper": upper[some].tolist()}
    return {"protocol": name, "rows": rows, "curve": curve}


def tables(scenario: Scenario, data: ScenarioData, name: str) -> list[dict[str, Any]]:
    """Return the tables of other values of a protocol's keys that ``vflsim analyze`` prints, such as FedVS's best K.

    These may take seconds. Empty where there are none, or where they have no closed form.
    """
    try:
        choices = Analyses(scenario, data, {}).choices(name)
    except Unanalysable:
        return []
    return [
        {
            "protocol": name,
            "key": each.key,
            "title": each.title,
            "columns": [each.key, *each.columns],
            "rows": [list(map(shown, row)) for row in each.rows],
            "best": each.best,
            "notes": list(each.notes),
        }
        for each in choices
    ]


def _plain(value: Any) -> Any:
    """Return a value of a frame as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    return value


ROUNDS = 1_024
"""Rounds of each protocol, in place of those that came at once."""
MESSAGES = 6_000
"""About how many messages the rounds of each protocol have that are simulated event by event."""
VALUES = 40
"""Most values of t or K that are tried."""
_NICE = 10
"""How far the process stands back behind the one that answers at once."""


def pieces(raw: Mapping[str, Any], whose: str = "") -> Iterator[dict[str, Any]]:
    """Compute a scenario's slow figures piece by piece, the quick ones first.

    Each has a ``piece``: ``timeline`` (of the protocol ``whose``, if there is one), ``closed`` (the closed forms of a
    protocol), ``choice`` (the best t or K, of some values and then of all), ``rounds`` (more rounds than came at
    once), ``table`` (a table of ``vflsim analyze``), and at the end ``done``; or ``problem`` with a ``text`` where the
    data do not fit the scenario.
    """
    from vflsim.exploring.choices import choices
    from vflsim.exploring.figures import simulations, timeline
    from vflsim.scenario.load import load
    from vflsim.studies.checks.data import read_and_check

    scenario = load(raw)
    try:
        data = read_and_check(scenario, training=False)
    except VflsimError as error:
        yield {"piece": "problem", "text": str(error)}
        return
    if whose in scenario.protocols:
        yield {"piece": "timeline", **timeline(scenario, data, whose)}
    for name in scenario.protocols:
        yield {"piece": "closed", **closed_forms(scenario, data, name)}
    for choice in choices(scenario, data):
        yield {"piece": "choice", **choice}
    yield {"piece": "rounds", "protocols": simulations(scenario, data, ROUNDS, MESSAGES * len(scenario.protocols))}
    for choice in choices(scenario, data, ROUNDS // 4, most=VALUES, messages=MESSAGES):
        yield {"piece": "choice", **choice}
    for name in scenario.protocols:
        for table in tables(scenario, data, name):
            yield {"piece": "table", **table}
    yield {"piece": "done"}


def send_pieces(raw: Mapping[str, Any], whose: str, link: Connection) -> None:
    """Send all pieces, then None; the target of the process."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    if hasattr(os, "nice"):
        os.nice(_NICE)
    with contextlib.suppress(BrokenPipeError):  # nobody wants them any more
        for piece in pieces(raw, whose):
            link.send(piece)
        link.send(None)


class Later:
    """Computes the slow figures of one scenario at a time: a new one ends the work for the one before. Threads may ask.

    Processes are forked from one that has imported all they need; where that is impossible, each imports it anew.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._process: Any = None
        self._context = _context()

    def warm(self) -> None:
        """Begin with the imports."""
        if self._context.get_start_method() == "forkserver":
            forkserver.ensure_running()

    def of(self, raw: Mapping[str, Any], whose: str = "") -> Iterator[dict[str, Any]]:
        """Yield the pieces of a scenario as they come; they end early once another scenario is asked for."""
        ours, its = multiprocessing.Pipe(duplex=False)
        with self._changing:
            self._end()
            process = self._context.Process(target=send_pieces, args=(dict(raw), whose, its), daemon=True)
            process.start()
            self._process = process
        its.close()
        try:
            while (piece := ours.recv()) is not None:
                yield piece
        except EOFError:  # it has been ended, or it has failed
            if self._process is process:
                yield {"piece": "problem", "text": "this failed: the terminal of vflsim explore says why"}
        finally:
            ours.close()
            process.kill()

    def stop(self) -> None:
        """End the work, if there is any: nobody wants it any more."""
        with self._changing:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()


def _context() -> ForkServerContext | SpawnContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vflsim.exploring.preloaded"])
    return context
