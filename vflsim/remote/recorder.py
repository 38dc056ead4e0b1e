"""What one party of a live run records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import override

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.staleness import StepFacts
from vflsim.remote.energy import NotedFlops
from vflsim.timing.power import Power
from vflsim.world.order import InputOrder
from vflsim.world.record import Recorder


class LiveRecorder(Recorder):
    """Records when things really happened, where its world tells when they were due, and the order of ``party``.

    ``really`` gives the real time of an instant of the world, both in seconds since the start. The ``order`` of the
    party's inputs is kept where events are. Energy has no column until the run has ended.
    """

    def __init__(self, keep: str, party: int, really: Callable[[float], float]) -> None:
        super().__init__(keep)
        self._party, self._really = party, really
        self.order = InputOrder()
        if keep == "events":
            self.event = self._add

    def count_energy(self, powers: Mapping[int, Power], now: Callable[[], float]) -> None:
        """Keep what the energy of the run follows from when it has ended: all events, and operations; ``now`` (s)."""
        self.meter = NotedFlops(powers, self.events, lambda: self._really(now()))
        self.event = self._add

    def left(self, operation: Operation[Any]) -> None:
        """Note a computation of the party that has run, though the run ended before it: weights have its step."""
        if self.keep == "events":
            self.order.ended(f"compute.{operation.kind}")

    def _add(
        self, start: float, end: float, party: int, kind: str, round_: int, peer: int, size: int, index: int,
        drawn: float, outcome: str = "done", sent: float = math.nan,
    ) -> None:  # fmt: skip
        own = party == self._party and not math.isnan(drawn) and not kind.startswith("latency.")
        if self.keep == "events" and outcome == "done" and own:
            self.order.ended(kind)
        start, end, sent = (self._really(each) for each in (start, end, sent))
        self.events.add(start, end, party, kind, round_, peer, size, index, drawn, outcome, sent)

    @override
    def step(self, facts: StepFacts, now: float) -> None:
        super().step(facts, self._really(now))

    @property
    @override
    def metered(self) -> bool:
        return False  # known when the events of all parties are at hand

    @override
    def metrics(self, now: float, evaluated: dict[str, float]) -> dict[str, float]:
        return super().metrics(self._really(now), evaluated)
