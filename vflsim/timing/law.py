"""The distribution of a time. A formula of the cdf or of its inverse suffices; other quantities follow numerically."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.atoms import Atoms
from vflsim.timing.bisection import first, levels_reached, quantiles
from vflsim.timing.chebyshev import ChebyshevTable
from vflsim.timing.floats import Floats, exact_sum, floats
from vflsim.timing.moments import Moments, moments

_NEXT_TO_NOTHING = 1e-9
_LAST = 0.01
"""Share of the distance from the median to a bound, next to the bound. A bounded law has probability there."""


class Law:
    """The distribution of a time in seconds, at least 0.

    Override ``cdf`` or ``inverse_cdf``. By default each follows from the other by bisection, moments by quadrature
    of the survival function, and the density from a Chebyshev interpolant of the cdf. Override also whatever has a
    formula, ``support`` where the cdf alone is known and hardly anything lies near a bound, and ``atoms`` where there
    are any.

    Laws are values: equal laws describe the same distribution (the converse need not hold), and can be counted.

    Example::

        class Longest(Law):
            def __init__(self, laws: Sequence[Law]) -> None:
                self.laws = laws

            def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
                return np.prod([law.cdf(x) for law in self.laws], axis=0)


        uploads = [setting.timings[client].upload_delay for client in (2, 3)]
        Longest(uploads).expectation() > max(law.expectation() for law in uploads)  # True
    """

    def cdf(self, x: ArrayLike) -> Floats:
        """Give P(X ≤ x), elementwise."""
        return levels_reached(self.inverse_cdf, x)

    def inverse_cdf(self, u: Floats) -> Floats:
        """Give the smallest x with cdf(x) ≥ u, elementwise, for u in [0, 1]; non-decreasing in u."""
        return quantiles(self.cdf, self.support, u)

    def survival(self, x: ArrayLike) -> Floats:
        """Give P(X > x), elementwise; small ones precisely where possible."""
        return 1.0 - self.cdf(x)

    @property
    def precise_tail(self) -> bool:
        """Whether small survival probabilities keep their digits, as those of 1 − cdf do not."""
        return type(self).survival is not Law.survival or math.isfinite(self.support[1])

    @property
    def standard(self) -> Law:
        """A law of which this law is a multiple, shared by many laws; the law itself if there is no other."""
        return self

    def density(self, x: ArrayLike) -> Floats:
        """Give the derivative of the cdf (per second), elementwise; atoms have none."""
        return np.maximum(self.table.density(floats(x)), 0.0)

    def quantile(self, q: ArrayLike) -> Floats:
        """Give the smallest x with cdf(x) ≥ q, elementwise, for q in [0, 1]; raises ValueError elsewhere.

        The shortest time for 0, the longest for 1 (inf if unbounded).
        """
        levels = floats(q)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"a quantile of level {q!r}; allowed: levels from 0 to 1")
        with np.errstate(divide="ignore"):
            return self.inverse_cdf(levels)

    @property
    def support(self) -> tuple[float, float]:
        """The shortest and the longest possible time, in seconds (inf if unbounded).

        Where only the cdf is known they are where it leaves 0 and reaches 1, if that is no mere rounding of a tail.
        """
        return self._support

    @cached_property
    def _support(self) -> tuple[float, float]:
        if type(self).inverse_cdf is not Law.inverse_cdf:
            shortest, longest = self.quantile([0.0, 1.0]).tolist()
            return shortest, longest
        ends = np.zeros(2), np.full(2, sys.float_info.max)
        shortest, median = first(lambda x: self.cdf(x) >= [sys.float_info.min, 0.5], *ends).tolist()
        return shortest if shortest > _NEXT_TO_NOTHING * median else 0.0, self._upper_bound(median)

    def _upper_bound(self, median: float) -> float:
        """Return the time beyond which the survival function is 0; inf if a tail is merely too small for floats."""
        end = float(first(lambda x: self.survival(x) <= 0, np.array([median]), np.array([sys.float_info.max]))[0])
        left = self.survival(np.array([end - _LAST * (end - median), end]))
        return end if left[1] <= 0 and (left[0] > _NEXT_TO_NOTHING or end == median) else math.inf

    @property
    def breaks(self) -> Floats:
        """The points where the cdf jumps or is not smooth, in order."""
        return np.unique([end for end in self.support if math.isfinite(end)])

    def atoms(self) -> Atoms:
        """Return the times with positive probability; none if they cannot be listed."""
        return Atoms.none()

    def summands(self) -> tuple[Law, ...]:
        """Return independent times whose sum is this time; only the law itself if no others are known."""
        return (self,)

    def alternatives(self) -> tuple[tuple[float, Law], ...]:
        """Return the components of this mixture with their probabilities; only the law itself if it is no mixture."""
        return ((1.0, self),)

    def phases(self) -> Mapping[float, float] | None:
        """Return the probability of each mean if this law is a mixture of exponentials; otherwise None."""
        return None

    def nodes(self) -> Atoms | None:
        """Give atoms that stand for a law with very many breaks when it is added to others; None for other laws."""
        return None

    @property
    def accuracy(self) -> float:
        """The absolute error of the cdf; a table of the cdf need not be more accurate."""
        return 1e-12

    def expectation(self) -> float:
        """Give the mean, in seconds. (Several delays have a parameter that is called ``mean``.)"""
        return self._moments.mean

    def variance(self) -> float:
        """Give the variance, in seconds squared (inf where it does not exist, or is beyond the floats)."""
        return self._moments.variance

    def error(self) -> float:
        """Estimate the absolute error of ``expectation``: 0 where a formula gives it."""
        return self._moments.error

    def variance_error(self) -> float:
        """Estimate the absolute error of ``variance``: 0 where a formula gives it, inf where it is infinite."""
        return self._moments.variance_error

    @cached_property
    def _moments(self) -> Moments:
        return moments(self)

    @cached_property
    def table(self) -> ChebyshevTable:
        """A Chebyshev interpolant of the cdf."""
        variance = self.variance()
        scale = math.sqrt(variance) if math.isfinite(variance) else float(self.quantile(0.9)) - self.support[0]
        return ChebyshevTable.of(self.cdf, self.support, self.breaks, scale or 1.0, self.accuracy)


@final
@dataclass(frozen=True)
class Point(Law):
    """The law of a constant time."""

    value: float

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self.value, self.value

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self.value, 1.0, 0.0)

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.full(np.shape(u), self.value)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.zeros(np.shape(x))

    @override
    def atoms(self) -> Atoms:
        return Atoms.at(self.value)

    @override
    def expectation(self) -> float:
        return self.value

    @override
    def variance(self) -> float:
        return 0.0

    @override
    def error(self) -> float:
        return 0.0

    @override
    def variance_error(self) -> float:
        return 0.0


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

    @property
    @override
    def precise_tail(self) -> bool:
        return all(law.precise_tail for _, law in self.parts)

    @property
    @override
    def accuracy(self) -> float:
        return max(law.accuracy for _, law in self.parts)

    @override
    def alternatives(self) -> tuple[tuple[float, Law], ...]:
        return self.parts

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

    @override
    def variance_error(self) -> float:
        centre = self.expectation()
        if not math.isfinite(centre):
            return math.inf
        return exact_sum(
            weight * (law.variance_error() + 2 * abs(law.expectation() - centre) * (law.error() + self.error()))
            for weight, law in self.parts
        )


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
