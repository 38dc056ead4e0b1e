"""The distribution of a time. A formula of the cdf or of its inverse suffices; other quantities follow on a grid."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.errors import TooLargeError
from vflsim.timing.floats import Floats, first, floats, levels_reached, quantiles
from vflsim.timing.laws.grid import Grid

ERROR: Final = 3e-5
"""The error of a mean without a formula, relative to it; of the heaviest tails it may be some times larger."""
WHOLE: Final = 1 - 1e-12
"""The least mass that equals 1 except for rounding."""
_NEXT_TO_NOTHING = 1e-9
_LAST = 0.01
"""Share of the distance from the median to a bound, next to the bound. A bounded law has probability there."""
_TAIL = np.array([1e-6, 1e-8, 1e-10])
_STRAIGHT: Final = 1e-2
_NEWTON: Final = 1e-3
"""The largest step from a quantile on the grid, relative to its distance from the start."""
_DIGITS: Final = 3
"""The digits of a tail's exponent that can be measured."""


MAX_ATOMS = 2**21


class Atoms(NamedTuple):
    """Values in ascending order, and the probability of each."""

    values: Floats
    masses: Floats

    @classmethod
    def none(cls) -> Atoms:
        """Give the discrete part of a law that has none."""
        return cls(np.empty(0), np.empty(0))

    @classmethod
    def at(cls, value: float) -> Atoms:
        """Give the law of a constant."""
        return cls(np.array([value]), np.ones(1))

    @classmethod
    def merged(cls, values: Floats, masses: Floats) -> Atoms:
        """Sort values, and join equal ones."""
        unique, where = np.unique(values, return_inverse=True)
        return cls(unique, np.bincount(where.ravel(), masses, len(unique)).astype(np.float64))

    def lumped(self, most: int) -> Atoms:
        """Join neighbours into at most ``most`` groups of about equal mass, each at its mean."""
        if len(self.values) <= most:
            return self
        before = np.cumsum(self.masses) - self.masses / 2
        group = np.minimum((before * (most / self.mass)).astype(np.int64), most - 1)
        masses = np.bincount(group, self.masses, most)
        sums = np.bincount(group, self.masses * self.values, most)
        return Atoms(floats(sums[masses > 0] / masses[masses > 0]), floats(masses[masses > 0]))

    @property
    def mass(self) -> float:
        """The probability of all atoms together."""
        return float(self.masses.sum())

    def weighed(self, weight: float) -> Atoms:
        """Give the same values with masses that are multiplied by ``weight``."""
        return Atoms(self.values, self.masses * weight) if weight > 0 else Atoms.none()

    def plus(self, other: Atoms) -> Atoms:
        """Give the law of the sum. Raises TooLargeError for more than ``MAX_ATOMS`` combinations."""
        if len(self.values) * len(other.values) > MAX_ATOMS:
            raise TooLargeError(
                f"a sum of {len(self.values):,} by {len(other.values):,} observed values is too large for its exact "
                "distribution",
                "",
                f"{MAX_ATOMS:,} combinations",
            )
        return Atoms.merged(
            np.add.outer(self.values, other.values).ravel(), np.multiply.outer(self.masses, other.masses).ravel()
        )

    def cdf(self, x: ArrayLike) -> Floats:
        """Give P(X ≤ x), elementwise."""
        heights = np.concatenate([[0.0], np.cumsum(self.masses)])
        heights[-1] = self.masses.sum()
        np.minimum(heights, 1.0, out=heights)  # sums of rounded masses may exceed 1 by a few units of the last place
        return heights[np.searchsorted(self.values, floats(x), side="right")]

    def survival(self, x: ArrayLike) -> Floats:
        """Give P(X > x), elementwise; small ones precisely."""
        above = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)
        return above[np.searchsorted(self.values, floats(x), side="right")]


class Law:
    """The distribution of a time in seconds, at least 0.

    Override ``cdf`` or ``inverse_cdf``. By default each follows from the other by bisection, moments and the density
    from the law on a grid, to about five digits. Override also whatever has a formula, ``support`` where the cdf alone
    is known and hardly anything lies near a bound, and ``atoms`` where there are any.

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
    def standard(self) -> Law:
        """A law of which this law is a multiple, shared by many laws; the law itself if there is no other."""
        return self

    def density(self, x: ArrayLike) -> Floats:
        """Give the derivative of the cdf (per second), elementwise, to three digits; atoms have none."""
        weight, grid = self.continuous
        return np.zeros(np.shape(x)) if grid is None else weight * grid.density(floats(x))

    def quantile(self, q: ArrayLike) -> Floats:
        """Give the smallest x with cdf(x) ≥ q, elementwise, for q in [0, 1]; raises ValueError elsewhere.

        The shortest time for 0, the longest for 1 (inf if unbounded).
        """
        levels = floats(q)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"a quantile of level {q!r}; allowed: levels from 0 to 1")
        with np.errstate(divide="ignore", over="ignore"):
            return self.inverse_cdf(levels)

    @property
    def support(self) -> tuple[float, float]:
        """The shortest and the longest possible time, in seconds (inf if unbounded).

        Where only the cdf is known they are where it leaves 0 and reaches 1, if that is no mere rounding of a tail.
        """
        return self._support

    @cached_property
    @np.errstate(over="ignore")
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
        survival = self.survival(np.array([end - _LAST * (end - median), end]))
        return end if survival[1] <= 0 and (survival[0] > _NEXT_TO_NOTHING or end == median) else math.inf

    @property
    def breaks(self) -> Floats:
        """The points where the cdf jumps or is not smooth, in order, as far as they are known."""
        return np.unique([end for end in self.support if math.isfinite(end)])

    def atoms(self) -> Atoms:
        """Return the times with positive probability; none if they cannot be listed."""
        return Atoms.none()

    def summands(self) -> tuple[Law, ...]:
        """Return independent times whose sum is this time; only the law itself if no others are known."""
        return (self,)

    @property
    def tail_index(self) -> float:
        """The exponent a of a tail like x^−a, whose moments from the a-th on are infinite; inf for a lighter tail."""
        return self._tail_index

    @cached_property
    @np.errstate(all="ignore")
    def _tail_index(self) -> float:
        if math.isfinite(self.support[1]):
            return math.inf
        x = self.quantile(1 - _TAIL)
        survival = self.survival(x)
        if np.any(np.diff(x) <= 0) or np.any(survival <= 0):
            return math.inf
        early, late = (np.diff(np.log(survival)) / -np.diff(np.log(x))).tolist()
        return round(late, _DIGITS) if abs(late - early) < _STRAIGHT * early else math.inf

    @cached_property
    def continuous(self) -> tuple[float, Grid | None]:
        """The probability of times that are no atoms, and their distribution on a grid; None if there are none."""
        atoms, support = self.atoms(), self.support
        weight = 1 - atoms.mass
        if weight < 1 - WHOLE or support[0] == support[1]:
            return 0.0, None

        def levels(x: Floats) -> tuple[Floats, Floats]:
            below, above = self.cdf(x), self.survival(x)
            if not len(atoms.values):
                return below, above
            return (below - atoms.cdf(x)).clip(0.0) / weight, (above - atoms.survival(x)).clip(0.0) / weight

        return weight, Grid.of(levels, support, self.breaks, self.tail_index)

    def expectation(self) -> float:
        """Give the mean, in seconds. (Several delays have a parameter that is called ``mean``.)"""
        return self.moments[0]

    def variance(self) -> float:
        """Give the variance, in seconds squared (inf where it does not exist, or is beyond the floats)."""
        return self.moments[1]

    def error(self) -> float:
        """Estimate the absolute error of ``expectation``: 0 where a formula gives it."""
        return ERROR * self.expectation() if type(self).expectation is Law.expectation else 0.0

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the cdf, whatever formulas there are: of the atoms, and of the rest on its grid."""
        (values, masses), (weight, grid) = self.atoms(), self.continuous
        if grid is None and not len(values):
            return self.support[0], 0.0
        mean, variance = (0.0, 0.0) if grid is None else grid.moments
        if not len(values):
            return mean, variance
        whole = float(values @ masses) + (weight * mean if weight else 0.0)
        squares = float(masses @ (values - whole) ** 2) + (weight * (variance + (mean - whole) ** 2) if weight else 0.0)
        return whole, squares if math.isfinite(mean) else math.inf

    def excess(self, x: Floats) -> Floats:
        """Give E (X − x)⁺ = ∫ P(X > y) dy from x on, elementwise, within ``ERROR`` of the mean."""
        (values, masses), (weight, grid) = self.atoms(), self.continuous
        excess = np.zeros(np.shape(x)) if grid is None else weight * grid.integrals(x, upper=True)
        return excess + np.maximum(values - x[..., None], 0.0) @ masses if len(values) else excess

    def _on_grid(self, u: Floats) -> Floats:
        """Give quantiles fast, from the grid, with a step of Newton's; by bisection of the cdf if there are atoms."""
        weight, grid = self.continuous
        if grid is None or weight < WHOLE:
            return quantiles(self.cdf, self.support, u)
        x = grid.quantile(u)
        with np.errstate(all="ignore"):
            step = (self.survival(x) - (1 - u)) / grid.density(x)
            return np.where(np.abs(step) < _NEWTON * (x - grid.start), x + step, x)


@final
@dataclass(frozen=True)
class Point(Law):
    """The law of a constant time."""

    value: float

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self.value, 1.0, 0.0)

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.full(np.shape(u), self.value)

    @override
    def atoms(self) -> Atoms:
        return Atoms.at(self.value)

    @override
    def expectation(self) -> float:
        return self.value
