"""The energy of a live run: what its events add up to when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from typing_extensions import override

from vflsim.books.energy import Energy
from vflsim.books.spans import COMPUTE, FLOPS, spans_of
from vflsim.results.store.columns import energy_by_party
from vflsim.timing.power import Power
from vflsim.world.meter import Meter
from vflsim.world.record import Events


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
