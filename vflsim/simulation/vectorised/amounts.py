"""The bytes and operations that have an energy of their own, counted up to moments of a run, party by party."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Moves, Stretches
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.ledger import bytes_through, rows_of
from vflsim.recurrences.stages import Ints
from vflsim.simulation.vectorised.ends import End
from vflsim.timing.base import Floats
from vflsim.world.energy import Meter

ROW = -1
"""In the place of a round's number: a row of metrics, at the end of an instant."""
_PERHAPS, _IF_WAITED, _CERTAIN = range(3)
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


@dataclass(frozen=True, slots=True)
class _Items:
    """Amounts (n,) of parties: from when to when; the first round whose end may follow, and whether it does at once.

    For what the run's end cuts short: the ``whole`` amount, and the rate in bit/s, or the seconds, that it takes.
    """

    began: Floats
    ends: Floats
    since: Ints
    sooner: Ints
    places: Ints
    amounts: Ints
    whole: Floats
    pace: Floats
    profiles: NDArray[np.object_]

    @classmethod
    def of(cls, shape: tuple[int, ...], *columns: Any) -> _Items:
        """Make flat items of columns that are broadcast to a shape."""
        return cls(*(np.broadcast_to(column, shape).ravel() for column in columns))

    @classmethod
    def joined(cls, items: list[_Items]) -> _Items:
        """Join some."""
        columns = ([getattr(each, field.name) for each in items] for field in fields(cls))
        return cls(*map(np.concatenate, columns))

    def only(self, chosen: Bools) -> _Items:
        """Select some."""
        return _Items(*(getattr(self, field.name)[chosen] for field in fields(self)))


class _Sums:
    """The amounts of one kind, by the ``joules`` of each at every party's place (n,).

    ``through`` tells what is done of items at a time, ``tally`` is told what counts for the party at a place.
    """

    def __init__(
        self,
        joules: Sequence[float],
        through: Callable[[_Items, float], Ints],
        tally: Callable[[int, int], None],
    ) -> None:
        self.joules, self._level = np.unique(np.array(joules), return_inverse=True)
        self._costs = np.array(joules) > 0
        self._through, self._tally = through, tally
        self._waiting: list[_Items] = []

    @property
    def counts(self) -> bool:
        """Whether any party has an energy for each."""
        return bool(self._costs.any())

    def take(self, items: list[_Items], chunk: Chunk, moments: Asked, end: End | None) -> Ints:
        """Return the amounts (n, levels) of each moment since the one before, with the last what the end cuts short."""
        found = np.zeros((len(moments.times), len(self.joules)), np.int64)
        if not self._waiting and not items:
            return found
        here = _Items.joined([*self._waiting, *items])
        costs = self._costs[here.places] & (here.amounts > 0)
        slots = _slots(here, costs, chunk, moments)
        due = slots < len(found)
        self._add(here.only(due & costs), found, slots[due & costs])
        self._waiting = [here.only(~due & (here.ends < np.inf))]
        if end is not None:
            at_end = here.ends == end.time
            if end.moment == "update" and np.count_nonzero(at_end) > 1 and np.any(at_end & costs):
                raise undecided("an activity ends with the last client step", chunk.first + end.rounds, end.time)
            cut = here.only(costs & (here.began < end.time) & (here.ends > end.time))
            part = replace(cut, amounts=self._through(cut, end.time))
            self._add(part, found, np.full(len(part.ends), len(found) - 1))
        return found

    def _add(self, items: _Items, found: Ints, slots: Ints) -> None:
        np.add.at(found, (slots, self._level[items.places]), items.amounts)
        sums = np.zeros(len(self._level), np.int64)
        np.add.at(sums, items.places, items.amounts)
        for place in np.flatnonzero(sums).tolist():
            self._tally(place, int(sums[place]))


def _bytes_through(items: _Items, now: float) -> Ints:
    """Return the bytes that are through of messages that end later."""
    sizes = items.whole.astype(np.int64)
    return bytes_through(Moves("up", items.began, items.ends, sizes, sizes, items.pace, profiles=items.profiles), now)


def _operations_through(items: _Items, now: float) -> Ints:
    """Return the operations that are done of computations that end later, in proportion to the time."""
    share: Floats = (now - items.began) / items.pace
    done: Ints = (share * items.whole).astype(np.int64)
    return done


def _slots(items: _Items, costs: Bools, chunk: Chunk, moments: Asked) -> Ints:
    """Return the first moment of each item.

    Raises ``UndecidedError`` if only the order within an instant decides that of an item which ``costs`` energy.
    """
    slots = np.searchsorted(moments.times, items.ends, "left")
    inside = np.flatnonzero(slots < len(moments.times))
    times, rounds = moments.times[slots[inside]], moments.rounds[slots[inside]]
    with_round = (times == items.ends[inside]) & (rounds != ROW)
    at_once, number = inside[with_round], rounds[with_round]
    later = number < items.since[at_once]
    if not chunk.ordered:
        waited = chunk.waited[number - chunk.first] == items.ends[at_once]
        sooner = np.where(items.sooner[at_once] == _IF_WAITED, waited, items.sooner[at_once] == _CERTAIN)
        unclear = np.flatnonzero(~(later | sooner) & costs[at_once])
        if len(unclear):
            place = int(unclear[0])
            what = "an activity that has an energy ends with the server's step"
            raise undecided(what, int(number[place]), float(items.ends[at_once[place]]))
    slots[at_once[later]] += 1
    return slots


class Amounts:
    """Counts the bytes and operations of one run, chunk by chunk, where a party has an energy for each.

    ``numbers`` are those of the parties by their place, the server's the last.
    """

    def __init__(self, meter: Meter, numbers: Ints) -> None:
        self._meter = meter
        parties: list[int] = numbers.tolist()
        powers = [meter.power(party) for party in parties]
        self._bytes = _Sums(
            [0.0 if power is None else power.per_byte for power in powers],
            _bytes_through,
            lambda place, amount: meter.tally(parties[place], sent=amount),
        )
        self._flops = _Sums(
            [0.0 if power is None else power.per_flop for power in powers],
            _operations_through,
            lambda place, amount: meter.tally(parties[place], flops=amount),
        )
        self._server = len(parties) - 1

    def take(
        self, chunk: Chunk, spans: tuple[Stretches, ...], moments: Asked, end: End | None
    ) -> list[tuple[float, list[int]]]:
        """Add a chunk, in which the run may ``end``; return joules and what counts of them at each moment.

        Raises ``UndecidedError`` if something ends with a round, and only the order of events tells which comes first.
        """
        found = list[tuple[float, list[int]]]()
        for sums, told in ((self._bytes, self._moved(chunk, end)), (self._flops, self._performed(chunk, spans, end))):
            if sums.counts:
                counted = sums.take([*told], chunk, moments, end)
                found += zip(sums.joules.tolist(), counted.T.tolist(), strict=True)
        return found

    def _moved(self, chunk: Chunk, end: End | None) -> Iterator[_Items]:
        """Yield the transfers of a chunk at clients, and at the server."""
        for group, after in ((chunk.before, False), (chunk.during, False), (chunk.after, True)):
            for whole in group:
                rows = _noted(len(whole.ends), after, end)
                moves, since = rows_of(whole, 0, rows), _since(chunk, rows, after)
                clients = np.arange(moves.ends.shape[1]) if whole.places is None else whole.places[:rows]
                sooner = _IF_WAITED if moves.direction == "up" else _PERHAPS
                pace = moves.rates, np.array(None) if moves.profiles is None else moves.profiles
                for places in (clients, self._server):
                    of = moves.began, moves.ends, since, sooner, places, moves.counted, moves.sizes.astype(float)
                    yield _Items.of(moves.ends.shape, *of, *pace)

    def _performed(self, chunk: Chunk, spans: tuple[Stretches, ...], end: End | None) -> Iterator[_Items]:
        """Yield the computations of a chunk."""
        for each in spans:
            if each.state == "compute":
                assert each.flops is not None, "a metered world tells the operations of its computations"
                assert each.seconds is not None, "a metered world tells how long computations take"
                rows = _noted(len(each.ends), each.after, end)
                shape = each.ends.shape
                flops, seconds, places = (
                    np.broadcast_to(of, shape)[:rows] for of in (each.flops, each.seconds, each.places)
                )
                sooner = _CERTAIN if each.places is AT_SERVER else _PERHAPS
                yield _Items.of(
                    (rows, *shape[1:]), each.began[:rows], each.ends[:rows], _since(chunk, rows, each.after), sooner,
                    places % (self._server + 1), flops.astype(np.int64), flops, seconds, np.array(None),
                )  # fmt: skip


def _noted(rows: int, after: bool, end: End | None) -> int:
    """Return how many rows of a chunk belong to the run, of what happens in rounds or ``after`` them."""
    return rows if end is None else min(rows, end.rounds + (end.moment != "round") - after)


def _since(chunk: Chunk, rows: int, after: bool) -> Ints:
    """Return the first round whose end may follow what stands in each row (n, 1)."""
    since: Ints = chunk.first + after + np.arange(rows)[:, None]
    return since
