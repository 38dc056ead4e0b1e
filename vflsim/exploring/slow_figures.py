"""What does not come at once: the best t and K, closed forms, and more rounds, computed in a process of its own."""

import contextlib
import math
import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.stages import Unanalysable
from vflsim.api.scenarios import Analyses
from vflsim.errors import VflsimError
from vflsim.exploring.figures import finite, number, simulations, timeline
from vflsim.exploring.rounds import MESSAGES as AT_FIRST, SimulatedRounds, by_arrays, simulated
from vflsim.protocols.base import Protocol, UnsuitableError
from vflsim.results.store.closed_forms import curves_of
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, check_context
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.rounds import analyse
from vflsim.studies.engines.handover import forking
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
    rows = [finite(row) for row in frame.to_dict("records")]
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
        self._context = forking("vflsim.exploring.preload")

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


CRITERIA = {
    "t": "most embeddings used per second (t ÷ mean round)",
    "K": "shortest mean round; for every K a round trains on the same rows",
}
"""Keys whose best value is sought, and by what."""


CHOICE_ROUNDS = 64
"""Rounds of each value."""


ROUNDS_AT_ONCE, VALUES_AT_ONCE = 32, 4
"""Rounds of each value, and most values besides the present one, of the choices that come at once."""


NEAR = 0.02
"""Values whose score differs from the best by at most this share are named beside it."""


FEW = 8
"""Most values that are tried, besides the present one."""


def choices(
    scenario: Scenario, data: ScenarioData, rounds: int = CHOICE_ROUNDS, most: int = FEW, messages: int = AT_FIRST
) -> Iterator[dict[str, Any]]:
    """Yield, for each protocol that has a ``t`` or ``K``, the mean round of several values of it, and the best one.

    All values see the same draws of the scenario's first seed. Of more than ``most`` possible values some are left out,
    evenly; the present one is among them. Values for which the protocol refuses to run are not possible. ``messages``
    bounds rounds that only the event path can simulate.
    """

    def simulate(name: str, protocol: Protocol) -> SimulatedRounds:
        return simulated(scenario, name, data.of(scenario.training_of(name)), rounds, protocol, messages)

    yield from _choices(scenario, most, simulate)


def choices_at_once(scenario: Scenario, data: ScenarioData) -> list[dict[str, Any]]:
    """Return a first look at the choices: of few values in few rounds, and only where arrays can simulate them."""

    def simulate(name: str, protocol: Protocol) -> SimulatedRounds | None:
        return by_arrays(scenario, name, data.of(scenario.training_of(name)), ROUNDS_AT_ONCE, protocol)

    return list(_choices(scenario, VALUES_AT_ONCE, simulate))


def _choices(
    scenario: Scenario, most: int, simulate: Callable[[str, Protocol], SimulatedRounds | None]
) -> Iterator[dict[str, Any]]:
    for name, entry in scenario.protocols.items():
        for key in CRITERIA:
            if key in type(entry.protocol).model_fields:
                yield _choice(scenario, name, key, most, partial(simulate, name))


def _choice(
    scenario: Scenario, name: str, key: str, most: int, simulate: Callable[[Protocol], SimulatedRounds | None]
) -> dict[str, Any]:
    present = getattr(scenario.protocols[name].protocol, key)
    possible = dict(_possible(scenario, name, key))
    tried = _some(list(possible), most, present)
    rows, scores = list[dict[str, Any]](), dict[int, float]()
    for value in tried:
        rounds = simulate(possible[value])
        if rounds is not None and not rounds.error and len(rounds.ends):
            facts = {"step_s": rounds.step_s, "used_per_s": number(rounds.used_per_s), "rounds": len(rounds.ends)}
            rows.append({"value": value, **facts})
            scores[value] = _score(key, rounds)
    return {
        "protocol": name,
        "key": key,
        "present": present,
        "best": max(scores, key=scores.__getitem__, default=None),
        "near": [value for value, score in scores.items() if _near(score, scores)],
        "criterion": CRITERIA[key],
        "all": len(rows) == len(possible),
        "rows": rows,
    }


def _near(score: float, scores: dict[int, float]) -> bool:
    """Return whether a value is nearly as good as the best, and not the best itself."""
    first = max(scores.values())
    return score != first and abs(first - score) <= NEAR * abs(first)


def _score(key: str, rounds: SimulatedRounds) -> float:
    score = rounds.used_per_s if key == "t" else -rounds.step_s
    return score if not math.isnan(score) else -math.inf


def _possible(scenario: Scenario, name: str, key: str) -> Iterator[tuple[int, Protocol]]:
    """Yield the values of a key that the protocol accepts here, and the protocol with each."""
    protocol, context = scenario.protocols[name].protocol, check_context(scenario, name)
    for value in range(1, len(protocol.participants(scenario.clients, scenario.symbols)) + 1):
        other = protocol.model_copy(update={key: value})
        try:
            other.check(context)
        except (ValueError, UnsuitableError):
            continue
        yield value, other


def _some(values: list[int], most: int, present: int) -> list[int]:
    """Return up to ``most`` of ascending values, evenly spread from the first to the last, and the present one."""
    if len(values) <= most:
        return values
    evenly = {values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)}
    return sorted(evenly | ({present} & {*values}))
