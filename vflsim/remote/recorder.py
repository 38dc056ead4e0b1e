"""What one party of a live run records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from vflsim.protocol import Operation
from vflsim.worlds import (
    COMPUTE,
    FLOPS,
    Energy,
    Events,
    InputOrder,
    Meter,
    Power,
    Recorder,
    StepFacts,
    energy_by_party,
    spans_of,
)


class NotedFlops(Meter):
    """Notes the operations of a party among its events. What else takes energy, the events of all parties tell later.

    ``now`` gives the time of the present instant as events have it. Until the run has ended nothing is added up.
    """

    def __init__(self, powers: Mapping[int, Power], events: Events, now: Callable[[], float]) -> None:
        super().__init__(powers)
        self._events, self._present = events, now

    @override
    def begin(self, state: int, now: float, *parties: int) -> None:
        pass

    @override
    def end(self, state: int, now: float, *parties: int, amount: int = 0) -> None:
        if state == COMPUTE and amount:
            at = self._present()
            self._events.add(at, at, parties[0], FLOPS, -1, -1, amount, 0, float("nan"))

    @override
    def end_round(self, now: float) -> None:
        self.rounds.append(0.0)


@dataclass(frozen=True, slots=True)
class LiveEnergy:
    """``until``: the joules of all parties until each of the given times; and the table of all, by party and state."""

    until: tuple[float, ...]
    by_party: pa.Table


def energy_of(events: Events, powers: Mapping[int, Power], times: Sequence[float], end: float) -> LiveEnergy:
    """Add up the energy of a run from the events of all parties, until ``times``, in any order, and its ``end`` (s)."""
    energy, spans = Energy(powers), spans_of(events.table, list(events.kinds))
    moments = sorted({*times})
    slots = (np.searchsorted(moments, each) for each in (spans.began, spans.ends))
    until = dict(zip(moments, energy.take(spans.bounds(*slots), moments), strict=True))
    return LiveEnergy(tuple(until[time] for time in times), energy_by_party(energy.by_party(end)))


def without_flops(events: Events) -> Events:
    """Return the events without the notes of operations."""
    made, code = Events(), events.kinds.get(FLOPS, -1)
    made.extend(events.table[events.table["kind"] != code], list(events.kinds))
    return made


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

    def leftover(self, operation: Operation[Any]) -> None:
        """Note a computation of the party that has run, though the run ended before it: weights have its step."""
        if self.keep == "events":
            self.order.ended(f"compute.{operation.kind}")

    def _add(
        self, start: float, end: float, party: int, kind: str, round_: int, peer: int, size: int, index: int,
        drawn: float, outcome: str = "done", sent: float = math.nan,
    ) -> None:  # fmt: skip
        drawn_here = party == self._party and not math.isnan(drawn) and not kind.startswith("latency.")
        if self.keep == "events" and outcome == "done" and drawn_here:
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
