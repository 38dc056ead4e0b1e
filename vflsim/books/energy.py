"""The energy of a run: the one place where watts are multiplied by seconds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.books import COMPUTE, DOWN, RADIO, Bounds
from vflsim.streams import party_name
from vflsim.timing.floats import Floats
from vflsim.timing.party import Power

STATES = ("idle", "compute", "radio")
"""What a party draws for: while it is up it computes or is idle, and its radio is on besides."""
BY_PARTY = ("party", "state", "seconds", "watts", "amount", "joules_each", "joules")
"""The columns of the table of energy by party and state."""
_MANY = 256
"""Terms of a sum that are kept before they are joined."""
_Ints = NDArray[np.integer[Any]]


class ExactSeconds:
    """How many seconds something has been the case, summed over parties.

    The sum is rounded once, when somebody asks for it: the order of its beginnings and ends plays no part.
    """

    __slots__ = ("_on", "_terms")

    def __init__(self, on: int) -> None:
        self._terms, self._on = list[float](), on

    def extend(self, terms: list[float], on: int) -> None:
        """Add beginnings (minus their time) and ends (their time), ``on`` more beginnings than ends."""
        self._on += on
        self._terms += terms
        if len(self._terms) > _MANY:
            self._terms = _exact(self._terms)

    def until(self, now: float) -> float:
        """Return the seconds until ``now``; for whom it is the case goes on until then."""
        still = (math.ldexp(now, place) for place in range(self._on.bit_length()) if self._on >> place & 1)
        return math.fsum((*self._terms, *still))


def _exact(terms: Iterable[float]) -> list[float]:
    """Return a few floats with the very sum of ``terms``."""
    summands, parts = list(terms), list[float]()
    while part := math.fsum((*summands, *(-part for part in parts))):
        parts.append(part)
    return parts


def joules(seconds: float, watts: float, amount: int = 0, each: float = 0.0) -> float:
    """Return what a power, and an energy of ``each`` byte or operation, add up to."""
    return math.fsum((seconds * watts, amount * each))


class Energy:
    """Adds up the energy of the parties that have a ``Power``, from the bounds of their spans.

    A party draws ``compute`` while it computes, else ``idle``, and ``radio`` besides while it waits for its upload
    delay or a message moves from it or to it; nothing while it is down. Bytes and operations count when their message
    or computation ends, those of one that was cut short as far as it got. All times are seconds since the start.
    """

    def __init__(self, powers: Mapping[int, Power]) -> None:
        self._powers = dict(powers)
        self._places = np.full(max(powers) + 2, -1)
        """By the parties' numbers; −1 for those whose energy is not counted, as for the last, which stands for more."""
        self._places[[*powers]] = np.arange(len(powers))
        each = self._powers.values()
        watts = [[power.idle, power.computing, power.radio] for power in each]
        rates = [[0.0, power.per_flop, power.per_byte] for power in each]
        # Parties that are alike share a sum: the energy of all needs no sum over a million parties.
        labels = {(state, drawn): 0 for draws in watts for state, drawn in enumerate(draws)}
        self._watts = [drawn for _, drawn in labels]
        labels = dict(zip(labels, range(len(labels)), strict=True))
        self._label = np.array([[labels[each] for each in enumerate(draws)] for draws in watts]).T  # (states, parties)
        idle = np.bincount(self._label[0], minlength=len(labels)).tolist()
        self._shared = [ExactSeconds(on) for on in idle]
        self._seconds = [ExactSeconds(state == "idle") for state in STATES for _ in each]
        values, numbers = np.unique(np.array(rates).T, return_inverse=True)
        self._rates, self._rate = values.tolist(), numbers.reshape(len(STATES), -1)  # (states, parties)
        self._costs, self._amounts = np.array(rates).T > 0, [0] * len(self._rates)
        self._own_amounts: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._going_on = np.zeros((3, len(powers)), np.int32)
        """How many spans of each state go on, by party."""

    def counts(self, parties: _Ints) -> NDArray[np.bool_]:
        """Mark the parties whose energy is counted, by their numbers."""
        marks: NDArray[np.bool_] = self._places[np.minimum(parties, len(self._places) - 1)] >= 0
        return marks

    def take(self, bounds: Bounds, moments: Sequence[float]) -> list[float]:
        """Add bounds; return the energy until each of the ascending ``moments``, of what their slots say precedes them.

        No bound may precede one of an earlier call.
        """
        if not (counts := self.counts(bounds.parties)).all():
            bounds = bounds.only(counts)
        places = self._places[bounds.parties]
        counted = self._count(bounds, places, len(moments)).tolist()
        shared, energies = self._settle(bounds, places), list[float]()
        due = next(shared, None)
        for slot, now in enumerate([*moments, None]):
            while due is not None and due[0] == slot:
                _, label, terms, on = due
                self._shared[label].extend(terms, on)
                due = next(shared, None)
            self._amounts = [sum(pair) for pair in zip(self._amounts, counted[slot], strict=True)]
            if now is not None:
                energies.append(self.until(now))
        return energies

    def until(self, now: float) -> float:
        """Return the energy of all parties until ``now``, which is no earlier than anything that has been added."""
        drawn = (watts * seconds.until(now) for watts, seconds in zip(self._watts, self._shared, strict=True) if watts)
        return math.fsum((*drawn, *(each * amount for each, amount in zip(self._rates, self._amounts, strict=True))))

    def by_party(self, now: float) -> dict[str, list[Any]]:
        """Return the columns of the table of energy by party and state until ``now``.

        ``amount`` has bytes (radio) or operations (compute), where these have an energy ``joules_each``.
        """
        columns: dict[str, list[Any]] = {name: [] for name in BY_PARTY}
        for place, party in enumerate(self._powers):
            for number, state in enumerate(STATES):
                seconds = self._seconds[number * len(self._powers) + place].until(now)
                watts = self._watts[self._label[number, place]]
                each = self._rates[self._rate[number, place]]
                amount = self._own_amounts[number, place]
                total = joules(seconds, watts, amount, each)
                row = party_name(party), state, seconds, watts, amount, each, total
                for name, value in zip(BY_PARTY, row, strict=True):
                    columns[name].append(value)
        return columns

    def _count(self, bounds: Bounds, places: _Ints, moments: int) -> _Ints:
        """Count bytes and operations by what each of them takes, after each moment up to the next (moments + 1, n)."""
        totals = np.zeros((moments + 1, len(self._rates)), np.int64)
        some = np.flatnonzero((bounds.amounts != 0) & self._costs[bounds.states, places])
        if len(some):
            cells, amounts = (bounds.states[some], places[some]), bounds.amounts[some]
            np.add.at(totals, (bounds.slots[some], self._rate[cells]), amounts)
            sums = np.zeros(self._rate.shape, np.int64)
            np.add.at(sums, cells, amounts)
            for state, place in np.argwhere(sums).tolist():
                self._own_amounts[state, place] += int(sums[state, place])
        return totals

    def _settle(self, bounds: Bounds, places: _Ints) -> Iterator[tuple[int, int, list[float], int]]:
        """Tell each party's sums when its states change; return what to tell which shared sums, by slot."""
        order = np.lexsort((bounds.times, places))
        changes = self._changes(bounds.states[order], bounds.signs[order], places[order])
        state, rows = np.nonzero(changes)
        signs, rows = changes[state, rows], order[rows]
        terms, places = -signs * bounds.times[rows], places[rows]
        for cell, of, on in _runs(state * len(self._powers) + places, terms, signs):
            self._seconds[cell].extend(of, on)
        keys = bounds.slots[rows] * len(self._watts) + self._label[state, places]
        order = np.argsort(keys, kind="stable")
        runs = _runs(keys[order], terms[order], signs[order])
        return ((*divmod(key, len(self._watts)), of, on) for key, of, on in runs)

    def _changes(self, states: _Ints, signs: _Ints, places: _Ints) -> _Ints:
        """Return whether a state of its party begins (1) or ends (−1) with each of ordered bounds (states, n)."""
        parties = _starts(places)
        whose, lengths = places[parties], np.diff(parties, append=len(places))
        steps = np.where(states == np.array([[DOWN], [COMPUTE], [RADIO]]), signs, 0)
        sums = steps.cumsum(axis=1, dtype=np.int32)
        base = self._going_on[:, whose] - sums[:, parties] + steps[:, parties]
        after = sums + base.repeat(lengths, axis=1)
        self._going_on[:, whose] = after[:, parties + lengths - 1]
        return _on(after) - _on(after - steps)


def _on(going_on: _Ints) -> NDArray[np.int8]:
    """Return 1 where a party is in each of the states, by how many spans go on (3, n): nowhere where it is down."""
    up, computes, sends = going_on[DOWN] == 0, going_on[COMPUTE] > 0, going_on[RADIO] > 0
    return np.array([up & ~computes, up & computes, up & sends], np.int8)


def _starts(keys: _Ints) -> _Ints:
    """Return where others begin among keys, of which equal ones are side by side."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])


def _runs(keys: _Ints, terms: Floats, signs: _Ints) -> Iterator[tuple[int, list[float], int]]:
    """Yield keys, of which equal ones are side by side, their terms, and how many more of these are beginnings."""
    starts = _starts(keys)
    on = np.add.reduceat(signs, starts, dtype=np.int64).tolist()
    distinct, firsts = keys[starts].tolist(), starts.tolist()
    for key, first, last, more in zip(distinct, firsts, [*firsts, len(keys)][1:], on, strict=True):
        yield key, terms[first:last].tolist(), more
