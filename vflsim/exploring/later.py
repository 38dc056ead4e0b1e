"""What does not come at once: the best t and K, closed forms, and more rounds, computed in a process of its own."""

from __future__ import annotations

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

from vflsim.errors import VflsimError

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
    from vflsim.exploring.closed import closed_forms, tables
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
    for found in choices(scenario, data):
        yield {"piece": "choice", **found}
    yield {"piece": "rounds", "protocols": simulations(scenario, data, ROUNDS, MESSAGES * len(scenario.protocols))}
    for found in choices(scenario, data, ROUNDS // 4, most=VALUES, messages=MESSAGES):
        yield {"piece": "choice", **found}
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
