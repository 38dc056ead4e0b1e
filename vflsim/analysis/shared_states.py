"""States of alike clients at their own pace whose messages share links equally, and what h changes by in each.

A client is in one of its exponential stages, in a time of known law that nothing disturbs (constants, latency), on one
of two links, each divided equally among its messages, or with the server, which takes t embeddings and a constant time.
The state is how many clients are where, and the seconds that each timed one has left: a piecewise-deterministic Markov
process (Davis 1984, Journal of the Royal Statistical Society B 46: 353–388).

h is a polynomial in the times left for each combination of numbers, given by its Bernstein coefficients. Messages of
one size on a link that is shared equally leave in the order of what they have left, so that h is a polynomial where
0 ≤ r_1 ≤ … ≤ r_n ≤ size (a simplex), of any shape across. A coefficient belongs to a control point: every timed client
has a whole number, from 0 (nothing left) to the degree (all). As a polynomial lies between its coefficients' extremes,
an inequality of the coefficients of h's mean change is one for all states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np

from vflsim.timing.floats import Floats

State: TypeAlias = tuple[tuple[int, ...], int, int, tuple[tuple[int, ...], ...]]
"""Clients in each stage; embeddings that wait; what is left of the server's step (−1: none under way); of each time."""
Terms: TypeAlias = dict[State | str, float]
"""Coefficients of values h at control points, of what a second less on a link adds at most, and of the steps."""
UP, DOWN, STEPS = "up", "down", "steps"
AWAY_UP, ON_UP, AWAY_DOWN, ON_DOWN = range(4)


@dataclass(frozen=True)
class SharedLinks:
    """``clients`` alike ones in exponential stages of ``rates``, and a server that takes ``step`` for t embeddings.

    ``up`` and ``down``: the seconds of the largest message alone on its link; ``shorter``: what messages take less, on
    average, on either link. ``away_up`` and ``away_down``: the least and the greatest time between the last stage and
    the link, and between the server and the link, uniform between; None: none. ``degrees``: of h in what is left of
    these times, and of messages.
    """

    clients: int
    t: int
    rates: tuple[float, ...]
    step: float
    up: float
    down: float
    shorter: tuple[float, float]
    away_up: tuple[float, float] | None
    away_down: tuple[float, float] | None
    degrees: tuple[int, int]
    _known: dict[State, Terms] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def kinds(self) -> dict[int, tuple[float, int]]:
        """The greatest time and the degree of each kind of timed clients that there is."""
        away, usual = self.degrees
        found = {ON_UP: (self.up, usual), ON_DOWN: (self.down, usual)}
        for kind, span in ((AWAY_UP, self.away_up), (AWAY_DOWN, self.away_down)):
            if span is not None:
                found[kind] = span[1], away
        return found

    def size(self, first: int = 0) -> int:
        """Give the number of ``points``."""
        sorts = len(self.rates) + sum(degree + 1 - first for _, degree in self.kinds.values())
        return sum(math.comb(sorts + moving - 1, moving) for _, _, moving in self._numbers(first))

    def points(self, first: int = 0) -> Iterator[State]:
        """Yield all control points; ``first`` 1: only those at which nobody has nothing left, the unknowns."""
        times = [(kind, left) for kind, (_, degree) in self.kinds.items() for left in range(first, degree + 1)]
        count = len(self.rates)
        for serving, waiting, moving in self._numbers(first):
            for where in combinations_with_replacement(range(count + len(times)), moving):
                stages = [where.count(stage) for stage in range(count)]
                timed: list[list[int]] = [[] for _ in range(4)]
                for kind, left in (times[place - count] for place in where if place >= count):
                    timed[kind].append(left)
                yield tuple(stages), waiting, serving, tuple(map(tuple, timed))

    def _numbers(self, first: int) -> Iterator[tuple[int, int, int]]:
        """Yield what may be left of the server's step, how many wait for it, and how many neither wait nor are used."""
        for serving in (-1, *range(first, 2)):
            rest = self.clients - (self.t if serving >= 0 else 0)
            for waiting in range(min(rest, rest if serving >= 0 else self.t - 1) + 1):
                yield serving, waiting, rest - waiting

    # --- what happens ---------------------------------------------------------------------------------------------

    def change(self, at: State) -> Terms:
        """Give the mean change of h per second at a control point."""
        stages, waiting, serving, timed = at
        whole: Terms = {}
        for stage, rate in enumerate(self.rates):
            if stages[stage]:
                moved = _changed(stages, stage, -1)
                if stage + 1 < len(self.rates):
                    follows: Terms = {(_changed(moved, stage + 1, 1), waiting, serving, timed): 1.0}
                else:
                    follows = self._leaves((moved, waiting, serving, timed), AWAY_UP, self.away_up)
                _add(whole, stages[stage] * rate, follows)
                _add(whole, -stages[stage] * rate, {at: 1.0})
        if serving >= 0:
            for other, weight in ((0, 1.0), (1, -1.0)):
                _add(whole, weight / self.step, {(stages, waiting, other, timed): 1.0})
        for kind, left in enumerate(timed):
            if left:
                _add(whole, 1.0, self._elapses(at, kind))
        return self._resolved(whole)

    def shortened(self, at: State) -> Iterator[tuple[str, Terms]]:
        """Yield what a second less on a link adds to h: coefficients of its derivatives, with the link."""
        for kind, name in ((ON_UP, UP), (ON_DOWN, DOWN)):
            left, (most, degree) = at[3][kind], self.kinds[kind]
            if left and left[-1] < degree:
                for place in range(len(left)):  # this client, and those with more left, one further or not
                    raised: Terms = {}
                    for first, weight in ((place, -degree / most), (place + 1, degree / most)):
                        other = tuple(each + (which >= first) for which, each in enumerate(left))
                        _add(raised, weight, self.value(_with_all(at, kind, other)))
                    yield name, raised

    def value(self, at: State) -> Terms:
        """Give h at a control point in terms of the unknowns: what has nothing left moves on."""
        if at not in self._known:
            follows = self._moves_on(at)
            self._known[at] = {at: 1.0} if follows is None else self._resolved(follows)
        return self._known[at]

    def _resolved(self, terms: Terms) -> Terms:
        found: Terms = {}
        for key, weight in terms.items():
            _add(found, weight, {key: 1.0} if isinstance(key, str) else self.value(key))
        return found

    def _moves_on(self, at: State) -> Terms | None:
        """Return what follows where something has nothing left; None where nothing has."""
        stages, waiting, serving, timed = at
        for kind, left in enumerate(timed):
            if left and left[0] == 0:
                rest = (*timed[:kind], left[1:], *timed[kind + 1 :])
                if kind == ON_DOWN:
                    return {(_changed(stages, 0, 1), waiting, serving, rest): 1.0}
                if kind == ON_UP:
                    return {self._started((stages, waiting + 1, serving, rest)): 1.0}
                link = ON_UP if kind == AWAY_UP else ON_DOWN
                return {_with((stages, waiting, serving, rest), link, self.kinds[link][1]): 1.0}
        if serving != 0:
            return None
        sent: Terms = {(stages, waiting, -1, timed): 1.0}
        for _ in range(self.t):
            more: Terms = {}
            for state, weight in sent.items():
                assert not isinstance(state, str), "states only"
                _add(more, weight, self._leaves(state, AWAY_DOWN, self.away_down))
            sent = more
        follows: Terms = {STEPS: 1.0, UP: self.t * self.shorter[0], DOWN: self.t * self.shorter[1]}
        for state, weight in sent.items():
            assert not isinstance(state, str), "states only"
            _add(follows, weight, {self._started(state): 1.0})
        return follows

    def _leaves(self, at: State, kind: int, span: tuple[float, float] | None) -> Terms:
        """Return a client on its way to a link, or on the link where it gets there at once."""
        if span is None:
            return {_with(at, kind + 1, self.kinds[kind + 1][1]): 1.0}
        weights = uniform_weights(span, self.kinds[kind][1])
        return {_with(at, kind, left): weight for left, weight in enumerate(weights) if weight > 0}

    def _started(self, at: State) -> State:
        stages, waiting, serving, timed = at
        return (stages, waiting - self.t, 1, timed) if serving < 0 and waiting >= self.t else at

    # --- time passes ----------------------------------------------------------------------------------------------

    def _elapses(self, at: State, kind: int) -> Terms:
        """Return −Σ ∂h/∂r per second of one kind's clients, at a control point."""
        left, (most, degree) = at[3][kind], self.kinds[kind]
        if kind in (ON_UP, ON_DOWN):
            changes, rate = simplex_slopes(left, degree), 1 / (most * len(left))
        else:
            changes, rate = cube_slopes(left, degree), 1 / most
        return {_with_all(at, kind, other): -rate * weight for other, weight in changes.items()}


def simplex_slopes(left: tuple[int, ...], degree: int) -> dict[tuple[int, ...], float]:
    """Give the coefficient of Σ ∂h/∂r at a control point of 0 ≤ r_1 ≤ … ≤ r_n ≤ 1, by coefficients of h."""
    many, found = len(left), dict[tuple[int, ...], float]()
    ends = (0, *left, degree)
    for low in range(many + 1):  # so many clients are at the lower end of a stretch, the others at its upper end
        weight = ends[low + 1] - ends[low]
        if weight:
            for sign, change in ((1, (1, 0)), (-1, (0, -1))):
                other = tuple(each + change[place >= low] for place, each in enumerate(left))
                found[other] = found.get(other, 0.0) + sign * weight
    return found


def cube_slopes(left: tuple[int, ...], degree: int) -> dict[tuple[int, ...], float]:
    """Give the coefficient of Σ ∂h/∂r at a control point of 0 ≤ r_i ≤ 1, by coefficients of the symmetric h."""
    found = dict[tuple[int, ...], float]()
    for place, each in enumerate(left):
        for other, weight in ((each - 1, -each), (each, 2 * each - degree), (each + 1, degree - each)):
            if weight:
                key = tuple(sorted((*left[:place], other, *left[place + 1 :])))
                found[key] = found.get(key, 0.0) + weight
    return found


def uniform_weights(span: tuple[float, float], degree: int) -> list[float]:
    """Give the means of the Bernstein polynomials of a time that is uniform in ``span``, by the greatest one."""
    nodes, shares = np.polynomial.legendre.leggauss(degree + 1)
    low = span[0] / span[1]
    x: Floats = low + (1 - low) * (nodes + 1) / 2
    return [
        float(shares @ (math.comb(degree, k) * x**k * (1 - x) ** (degree - k))) / 2 for k in range(degree + 1)
    ]  # fmt: skip


def _changed(numbers: tuple[int, ...], place: int, by: int) -> tuple[int, ...]:
    return (*numbers[:place], numbers[place] + by, *numbers[place + 1 :])


def _with(at: State, kind: int, left: int) -> State:
    return _with_all(at, kind, tuple(sorted((*at[3][kind], left))))


def _with_all(at: State, kind: int, left: tuple[int, ...]) -> State:
    stages, waiting, serving, timed = at
    return stages, waiting, serving, (*timed[:kind], left, *timed[kind + 1 :])


def _add(to: Terms, weight: float, terms: Terms) -> None:
    for key, each in terms.items():
        to[key] = to.get(key, 0.0) + weight * each
