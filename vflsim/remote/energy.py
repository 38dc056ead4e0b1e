"""The energy of a live run: what its events add up to when it has ended, by the sums of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from typing_extensions import override

from vflsim.results.store.energy import energy_by_party
from vflsim.timing.power import Power
from vflsim.world.energy import Meter
from vflsim.world.record import OUTCOMES, Events

FLOPS = "flops"
"""The kind of a row that notes operations in place of bytes: no event, and in no table."""
_Call = Callable[[float], None]


class NotedFlops(Meter):
    """Notes the operations of a party among its events. What else takes energy, the events of all parties tell later.

    ``now`` gives the time of the present instant as events have it. Until the run has ended nothing is added up.
    """

    def __init__(self, powers: Mapping[int, Power], events: Events, now: Callable[[], float]) -> None:
        super().__init__(powers)
        self._events, self._present = events, now

    @override
    def performed(self, party: int, flops: int) -> None:
        at = self._present()
        self._events.add(at, at, party, FLOPS, -1, -1, flops, 0, float("nan"))

    @override
    def joules(self, now: float) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Energy:
    """``until``: the joules of all parties until each of the given times; and the table of all, by party and state."""

    until: tuple[float, ...]
    by_party: pa.Table


def energy_of(events: Events, powers: Mapping[int, Power], times: Sequence[float], end: float) -> Energy:
    """Add up the energy of a run from the events of all parties, until ``times``, in any order, and its ``end`` (s)."""
    meter = Meter(powers)
    told = sorted(_told(events, meter), key=lambda each: each[0])
    until, place = dict.fromkeys(times, 0.0), 0
    for time in sorted(until):
        while place < len(told) and told[place][0] <= time:
            at, tell = told[place]
            tell(at)
            place += 1
        until[time] = meter.joules(time)
    for at, tell in told[place:]:
        tell(at)
    return Energy(tuple(until[time] for time in times), energy_by_party(meter.by_party(end)))


def without_flops(events: Events) -> Events:
    """Return the events without the notes of operations."""
    made, code = Events(), events.kinds.get(FLOPS, -1)
    made.extend(events.table[events.table["kind"] != code], list(events.kinds))
    return made


def _told(events: Events, meter: Meter) -> Iterable[tuple[float, _Call]]:
    """Yield what the meter is to be told, and when: of each activity its beginning and its end."""
    names, table = list(events.kinds), events.table
    columns = (table[name].tolist() for name in ("start_s", "end_s", "kind", "party", "peer", "bytes", "outcome"))
    for start, end, code, party, peer, amount, outcome in zip(*columns, strict=True):
        match names[code].partition(".")[0]:
            case "compute":
                yield start, partial(meter.begin_compute, party)
                yield end, partial(meter.end_compute, party)
            case "transfer":
                yield start, partial(meter.begin_transfer, party, peer)
                yield end, partial(meter.end_transfer, party, peer, sent=amount)
            case "outage":
                yield start, partial(meter.set_up, party, up=False)
                if OUTCOMES[outcome] == "done":
                    yield end, partial(meter.set_up, party, up=True)
            case "latency" | "activation":
                pass
            case "flops":
                yield end, partial(_performed, meter, party, amount)
            case _:  # an upload delay, of any name
                yield start, partial(meter.begin_radio, party)
                yield end, partial(meter.end_radio, party)


def _performed(meter: Meter, party: int, flops: int, _now: float) -> None:
    meter.performed(party, flops)
