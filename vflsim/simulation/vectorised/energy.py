"""The energy of a run from arrays: the spans of each chunk of rounds, and which moments of the run they precede."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vflsim.books import COMPUTE, RADIO, PartySpans
from vflsim.books.energy import Energy
from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Moves, undecided
from vflsim.recurrences.stages import Ints
from vflsim.stopping.end_rule import End
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.timing.party import Power

ROW = -1
"""In the place of a round's number: a row of metrics, at the end of an instant."""
_PERHAPS, _IF_WAITED, _CERTAIN = np.arange(3, dtype=np.int8)
"""Whether what ends at the very instant of a round's end comes before it; an embedding that the server waited for does.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """Ascending times (n,) at which an energy is asked for: as a round (its number) ends, or for a ``ROW``."""

    times: Floats
    rounds: Ints

    @classmethod
    def of(cls, chunk: Chunk, done: int, rows: Sequence[float]) -> Asked:
        """Return the ends of the first ``done`` rounds of a chunk, and the times of rows, which follow them."""
        times = np.concatenate([chunk.ends[:done], rows])
        rounds = np.concatenate([np.arange(chunk.first, chunk.first + done), np.full(len(rows), ROW)])
        order = np.argsort(times, kind="stable")
        return cls(times[order], rounds[order])


@final
@dataclass(frozen=True, slots=True)
class _Items(PartySpans):
    """PartySpans, with the first round whose end may follow, and whether it does at once.

    For what the run's end cuts short: the ``whole`` amount, and the rate in bit/s, or the seconds, that it takes.
    """

    since: Ints
    sooner: Ints
    whole: Floats
    pace: Floats
    profiles: NDArray[np.object_]


class EnergyBooks:
    """The energy of one run, chunk by chunk, of parties with these ``powers``."""

    def __init__(self, powers: Mapping[int, Power], clients: Ints) -> None:
        self.energy = Energy(powers)
        self._numbers = np.concatenate([clients, [SERVER]]).astype(np.int32)  # the server's place is the last
        by_place = [powers.get(party) for party in self._numbers.tolist()]
        self._costs = {
            RADIO: np.array([power is not None and power.per_byte > 0 for power in by_place]),
            COMPUTE: np.array([power is not None and power.per_flop > 0 for power in by_place]),
        }
        counted = self.energy.counts(self._numbers)
        # Of all computations: what ends with the client step that ends the run may precede it or follow it.
        self._masks = {RADIO: counted, COMPUTE: counted | self._costs[COMPUTE].any()}
        self._waiting: list[_Items] = []
        self._until = 0.0

    def take(self, chunk: Chunk, moments: Asked, end: End | None) -> list[float]:
        """Add what parties do in the rounds of a chunk, in which the run may ``end``; return the energies at moments.

        Raises ``UndecidedError`` if the chunk does not tell all of it, or the order within an instant decides.
        """
        if chunk.spans is None:
            raise undecided("the recurrence does not tell when parties compute and send", chunk.first, self._until)
        here, count = _Items.joined([*self._waiting, *self._items(chunk, end)]), len(moments.times)
        waited = sum(len(each.began) for each in self._waiting)
        early = (here.began[waited:] < self._until) & (here.ends[waited:] > here.began[waited:])
        if np.any(early & self.energy.counts(here.parties[waited:])):
            raise undecided("an activity begins before the rounds so far have ended", chunk.first, self._until)
        first, last = np.searchsorted(moments.times, here.began), _slots(here, chunk, moments)
        if end is not None:
            here, cut = _cut(here, chunk, end)
            last[cut] = count - 1
        begins, stops = first < count, last < count
        begins[:waited] &= here.began[:waited] > self._until  # the others have been told
        self._waiting, self._until = [here.only(~stops)], float(moments.times[-1])
        bounds = here.bounds(first, last).only(np.concatenate([begins, stops]))
        del here
        return self.energy.take(bounds, moments.times.tolist())

    def _items(self, chunk: Chunk, end: End | None) -> Iterator[_Items]:
        for group, after in ((chunk.before, False), (chunk.during, False), (chunk.after, True)):
            for moves in group:
                clients = np.arange(moves.ends.shape[1]) if moves.places is None else moves.places
                sooner = _IF_WAITED if moves.direction == "up" else _PERHAPS
                for places in (clients, AT_SERVER):
                    columns = sooner, moves.sizes, moves.rates, moves.profiles
                    yield self._of(RADIO, chunk, end, moves.began, moves.ends, places, after, moves.counted, *columns)
        for each in chunk.spans or ():
            if each.state not in ("compute", "radio"):
                continue
            flops, state = 0 if each.flops is None else each.flops, COMPUTE if each.state == "compute" else RADIO
            sooner = _CERTAIN if each.places is AT_SERVER else _PERHAPS
            taken = 0.0 if each.seconds is None else each.seconds
            of = each.began, each.ends, each.places, each.after, flops, sooner
            yield self._of(state, chunk, end, *of, flops, taken, None)

    def _of(
        self, state: int, chunk: Chunk, end: End | None, began: Floats, ends: Floats, places: Ints, after: bool,
        amounts: Any, *columns: Any,
    ) -> _Items:  # fmt: skip
        """Return those who count of spans of one state (n, m), in the rounds of a chunk or ``after`` them."""
        rows = np.arange(len(ends))[:, None]
        # Only so many rows belong to the run, and no span that is longer than nothing in the others.
        noted = len(ends) if end is None else end.rounds + (end.moment != "round") - after
        places = np.broadcast_to(places, ends.shape)
        mask = self._masks[state][places] & (ends < np.inf)
        amounts = np.where(self._costs[state][places] & (rows < noted), amounts, 0).astype(np.int64)
        each = np.int8(state), self._numbers[places], began, ends, amounts, chunk.first + after + rows, *columns
        return _Items(*(np.broadcast_to(np.asarray(column), ends.shape)[mask] for column in each))


def _slots(items: _Items, chunk: Chunk, moments: Asked) -> Ints:
    """Return the first moment that follows the end of each item.

    Raises ``UndecidedError`` if only the order within an instant decides that of an item whose amount has an energy.
    """
    slots: Ints = np.searchsorted(moments.times, items.ends)
    inside = np.flatnonzero((slots < len(moments.times)) & (items.amounts > 0))
    times, rounds = moments.times[slots[inside]], moments.rounds[slots[inside]]
    with_round = (times == items.ends[inside]) & (rounds != ROW)
    at_once, number = inside[with_round], rounds[with_round]
    later = number < items.since[at_once]
    if not chunk.ordered:
        waited = chunk.waited[number - chunk.first] == items.ends[at_once]
        sooner = np.where(items.sooner[at_once] == _IF_WAITED, waited, items.sooner[at_once] == _CERTAIN)
        unclear = np.flatnonzero(~(later | sooner))
        if len(unclear):
            place = int(unclear[0])
            what = "an activity that has an energy ends with the server's step"
            raise undecided(what, int(number[place]), float(items.ends[at_once[place]]))
    slots[at_once[later]] += 1
    return slots


def _cut(items: _Items, chunk: Chunk, end: End) -> tuple[_Items, Bools]:
    """Cut at the end of the run what goes on then: amounts count as far as they got. Return also which items do.

    Raises ``UndecidedError`` if something whose amount has an energy ends with the client step that ends the run.
    """
    now, computes = end.time, items.states == COMPUTE
    at_end = items.ends == now
    costly = at_end & (items.amounts > 0)
    others = np.any(costly & ~computes) or np.count_nonzero(at_end & computes) > 1
    if end.moment == "update" and np.any(costly) and others:
        raise undecided("an activity ends with the last client step", chunk.first + end.rounds, now)
    cut = (items.began < now) & (items.ends > now)
    amounts, ends = items.amounts.copy(), np.where(cut, now, items.ends)
    for state, through in ((RADIO, _bytes_through), (COMPUTE, _operations_through)):
        some = cut & (items.amounts > 0) & (items.states == state)
        amounts[some] = through(items.only(some), now)
    return replace(items, ends=ends, amounts=amounts), cut


def _bytes_through(items: _Items, now: float) -> Ints:
    sizes = items.whole.astype(np.int64)
    return Moves("up", items.began, items.ends, sizes, sizes, items.pace, profiles=items.profiles).through(now)


def _operations_through(items: _Items, now: float) -> Ints:
    """Return the operations that are done of computations that end later, in proportion to the time."""
    share: Floats = (now - items.began) / items.pace
    done: Ints = (share * items.whole).astype(np.int64)
    return done
