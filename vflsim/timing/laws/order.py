"""Laws that follow from others: transformed, mixtures, order statistics; and what the slowest draws contribute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc
from typing_extensions import override

from vflsim.timing.floats import Floats, exact_sum, floats
from vflsim.timing.laws.law import Atoms, Law, Point

_NOTHING: Final = 1e-15
"""The largest jump of a cdf that counts as rounding."""


class Transformed(Law, ABC):
    """A time that follows from another one, whose ``law`` is known: by default it is that time."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """The law of the other time."""

    def _place(self, x: ArrayLike) -> Floats:
        """Give the other time at which this one is ``x``, elementwise."""
        return floats(x)

    def _image(self, x: Floats) -> Floats:
        """Invert ``_place``."""
        return x

    @cached_property
    @override
    def _support(self) -> tuple[float, float]:
        shortest, longest = self._image(floats(self.law.support)).tolist()
        return shortest, longest

    @property
    @override
    def tail_index(self) -> float:
        return self.law.tail_index

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self.law.cdf(self._place(x))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return self.law.survival(self._place(x))

    @override
    def density(self, x: ArrayLike) -> Floats:
        return self.law.density(self._place(x))

    @override
    def atoms(self) -> Atoms:
        values, masses = self.law.atoms()
        return Atoms(self._image(values), masses)

    @property
    @override
    def breaks(self) -> Floats:
        return self._image(self.law.breaks)

    @override
    def expectation(self) -> float:
        return float(self._image(floats(self.law.expectation())))

    @override
    def variance(self) -> float:
        return self.law.variance()

    @override
    def error(self) -> float:
        return self.law.error()


@final
@dataclass(frozen=True)
class MixtureLaw(Law):
    """One of several laws, each with its probability."""

    parts: tuple[tuple[float, Law], ...]

    @property
    @override
    def support(self) -> tuple[float, float]:
        shortest, longest = zip(*(law.support for _, law in self.parts), strict=True)
        return min(shortest), max(longest)

    @property
    @override
    def breaks(self) -> Floats:
        return union(law for _, law in self.parts)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        level = np.asarray(sum(weight * law.cdf(x) for weight, law in self.parts))
        return np.where(floats(x) >= self.support[1], 1.0, np.clip(level, 0.0, 1.0))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        level = np.asarray(sum(weight * law.survival(x) for weight, law in self.parts))
        return np.where(floats(x) >= self.support[1], 0.0, np.clip(level, 0.0, 1.0))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @property
    @override
    def tail_index(self) -> float:
        return min(law.tail_index for _, law in self.parts)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.asarray(sum(weight * law.density(x) for weight, law in self.parts))

    @override
    def atoms(self) -> Atoms:
        each = [(weight, law.atoms()) for weight, law in self.parts]
        values = np.concatenate([atoms.values for _, atoms in each])
        return Atoms.merged(values, np.concatenate([weight * atoms.masses for weight, atoms in each]))

    @override
    def expectation(self) -> float:
        return exact_sum(weight * law.expectation() for weight, law in self.parts)

    @override
    def variance(self) -> float:
        centre = self.expectation()
        return exact_sum(weight * (law.variance() + (law.expectation() - centre) ** 2) for weight, law in self.parts)

    @override
    def error(self) -> float:
        return exact_sum(weight * law.error() for weight, law in self.parts)


def mixture(parts: Iterable[tuple[float, Law]]) -> Law:
    """Give the mixture of laws with their probabilities. Equal laws are joined; a single one is its own mixture."""
    weights: dict[Law, float] = {}
    for weight, law in parts:
        weights[law] = weights.get(law, 0.0) + weight
    if len(weights) == 1:
        return next(iter(weights))
    return MixtureLaw(tuple((weight, law) for law, weight in weights.items()))


def union(laws: Iterable[Law]) -> Floats:
    """Give the breaks of several laws together, in order."""
    return np.unique(np.concatenate([law.breaks for law in laws]))


def order_statistic(laws: Iterable[Law], t: int) -> Law:
    """Give the law of the t-th smallest of independent times. Raises ValueError for a t out of range."""
    groups = tuple(Counter(laws).items())
    n = sum(count for _, count in groups)
    if not 1 <= t <= n:
        raise ValueError(f"the {t}-th smallest of {n} times; allowed: 1 to {n}")
    if n == 1:
        return groups[0][0]
    law = OrderStatistic(groups, t)
    shortest, longest = law.support
    return Point(shortest) if shortest == longest else law  # t constants alone determine the law


def maximum(laws: Sequence[Law]) -> Law:
    """Give the law of the largest of independent times."""
    return order_statistic(laws, len(laws))


def minimum(laws: Sequence[Law]) -> Law:
    """Give the law of the smallest of independent times."""
    return order_statistic(laws, 1)


@final
@dataclass(frozen=True)
class OrderStatistic(Law):
    """The t-th smallest of independent times, equal laws grouped: P(X₍ₜ₎ ≤ x) = P(at least t of them are ≤ x)."""

    groups: tuple[tuple[Law, int], ...]
    t: int

    @cached_property
    def size(self) -> int:
        """The number of times."""
        return sum([count for _, count in self.groups])

    @cached_property
    @override
    def _support(self) -> tuple[float, float]:
        ends = [(*law.support, count) for law, count in self.groups]
        shortest = sorted([low for low, _, count in ends for _ in range(count)])[self.t - 1]
        return shortest, sorted([high for _, high, count in ends for _ in range(count)])[self.t - 1]

    @property
    @override
    def breaks(self) -> Floats:
        return union(law for law, _ in self.groups)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        if self.t == self.size:
            return _product([(law.cdf(x), count) for law, count in self.groups])
        if self.t == 1:
            return 1.0 - self.survival(x)
        if len(self.groups) == 1:  # alike times: the t-th smallest of uniform levels is a beta variable
            return floats(betainc(self.t, self.size + 1 - self.t, self.groups[0][0].cdf(x)))
        return 1.0 - self._fewer(floats(x))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        if self.t == 1:
            return _product([(law.survival(x), count) for law, count in self.groups])
        if self.t == self.size:
            with np.errstate(divide="ignore"):
                return np.asarray(-np.expm1(sum(count * np.log1p(-law.survival(x)) for law, count in self.groups)))
        if len(self.groups) == 1:
            return floats(betainc(self.size + 1 - self.t, self.t, self.groups[0][0].survival(x)))
        return self._fewer(floats(x))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @property
    @override
    def tail_index(self) -> float:
        """The sum of the least exponents of so many times as have to be long."""
        each = sorted(index for law, count in self.groups for index in [law.tail_index] * count)
        return sum(each[: self.size - self.t + 1])

    @override
    def atoms(self) -> Atoms:
        """Give the times at which the cdf jumps, as far as the atoms of all laws are known."""
        discrete = [law.atoms() for law, _ in self.groups]
        values = np.unique(np.concatenate([atoms.values for atoms in discrete]))
        before, by = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
        for (law, count), atoms in zip(self.groups, discrete, strict=True):
            jump = np.zeros(len(values))
            jump[np.searchsorted(values, atoms.values)] = atoms.masses
            up_to, later = law.cdf(values), law.survival(values)
            before += [(np.maximum(up_to - jump, 0.0), later + jump)] * count
            by += [(up_to, later)] * count
        if self.t == self.size:
            masses = self.cdf(values) - _product((p, 1) for p, _ in before)
        else:
            masses = _fewer(before, self.t) - _fewer(by, self.t)
        return Atoms(values[masses > _NOTHING], masses[masses > _NOTHING])

    def _fewer(self, x: Floats) -> Floats:
        """Give P(fewer than t are ≤ x), a sum of positive terms."""
        each = [((law.cdf(x), law.survival(x)), count) for law, count in self.groups]
        return _fewer([pair for pair, count in each for _ in range(count)], self.t)


def counts(p: Sequence[Floats], below: int, q: Sequence[Floats] | None = None) -> Floats:
    """Give P(exactly j of independent events happen) for j = 0 … below − 1, by the Poisson–binomial recursion.

    ``p`` are the events' probabilities, ``q`` those of their complements (default 1 − p; pass them where they are known
    more precisely). The result has shape (below, *shape of a probability). Events are added one by one:
    P'(j) = P(j) q + P(j − 1) p (Barlow & Heidtmann 1984). All terms are positive: no cancellation.
    """
    q = [1.0 - each for each in p] if q is None else q
    shape = np.broadcast_shapes(*(np.shape(each) for each in p)) if p else ()
    result = np.zeros((below, *shape))
    if below:
        result[0] = 1.0
    for n, (happens, fails) in enumerate(zip(p, q, strict=True), start=1):
        top = min(n, below - 1)
        result[1 : top + 1] = result[1 : top + 1] * fails + result[:top] * happens
        if below:
            result[0] *= fails
    return result


def _fewer(each: Sequence[tuple[Floats, Floats]], t: int) -> Floats:
    """Give the probability that fewer than t of independent events happen, from pairs P(happens), P(fails)."""
    return np.asarray(counts([p for p, _ in each], t, [q for _, q in each]).sum(axis=0).clip(max=1.0))


def _product(factors: Iterable[tuple[Floats, int]]) -> Floats:
    result: Floats | float = 1.0
    for factor, count in factors:
        result = result * factor**count
    return np.asarray(result)


# --- tails ------------------------------------------------------------------------------------------------------------


FEWEST: Final = 3
"""The least number of draws: the slowest third of a symmetric law has less than half of its variance."""
_STEPS: Final = 600
_LEAST: Final = 1e-13
"""The smallest probability of slower times that is used; below it, cdfs are round-off."""


def skewness(law: Law) -> float:
    """Estimate E (X − μ)³ / σ³ within a few percent: 2 for an exponential law, 0 for a constant.

    It is ∫ ((q(u) − μ) / σ)³ du, by the midpoint rule in ln(1 − u), so that slow times count as often as they occur.
    Where it is infinite, the result is large, as of a law that is cut at a probability of 1e-13. Infinite without a
    finite variance.
    """
    mean, variance = law.expectation(), law.variance()
    if not math.isfinite(variance):
        return math.inf
    if variance <= 0:
        return 0.0
    edges = np.linspace(0.0, -math.log(_LEAST), _STEPS + 1)
    weights = np.exp(-edges[:-1]) - np.exp(-edges[1:])
    levels = -np.expm1(-(edges[:-1] + edges[1:]) / 2)
    scaled = (law.quantile(levels) - mean) / math.sqrt(variance)
    return float((scaled**3 * weights).sum())


def tail_share(law: Law, draws: float) -> float:
    """Return the share of the variance that the slowest of so many ``draws`` (at least three) contributes.

    It is ∫ (q(u) − μ)² du over the levels u above 1 − 1/draws, divided by the variance: 1 for an infinite variance, 0
    for a constant. With the quantile a there, q(u) = a + (q(u) − a)⁺.
    """
    variance, mean = law.variance(), law.expectation()
    if not math.isfinite(variance):
        return 1.0
    if variance <= 0:
        return 0.0
    part = 1 / max(draws, FEWEST)
    edge = float(law.quantile(1 - part))
    (values, masses), (weight, grid) = law.atoms(), law.continuous
    over = np.maximum(values - edge, 0.0)
    first, second = float(over @ masses), float(over * over @ masses)
    if grid is not None:
        beyond = grid.beyond(edge)
        first, second = first + weight * beyond[0], second + weight * beyond[1]
    far = edge - mean
    return min(max((second + 2 * far * first + far * far * part) / variance, 0.0), 1.0)
