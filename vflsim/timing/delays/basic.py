"""The simplest delays: constant, uniform, and families by their hazard: exponential, Pareto."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.delays.base import Delay, Derived, exact, sympy
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law, Point
from vflsim.vocabulary import PositiveNumber, PositiveSeconds, Seconds


@final
class Constant(Derived):
    """Always the same delay.

    Example: ``{kind: constant, value: 5 ms}``
    """

    kind: Literal["constant"] = "constant"
    value: Seconds
    """The delay."""

    @property
    @override
    def law(self) -> Law:
        return Point(self.value)

    @override
    def expectation(self) -> float:
        return self.value

    @override
    def variance(self) -> float:
        return 0.0

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return sympy.Piecewise((0, x < exact(self.value)), (1, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.zeros(np.shape(u)) + self.value


@final
class Uniform(Delay):
    """Equally likely everywhere between two bounds.

    Example: ``{kind: uniform, low: 50 ms, high: 150 ms}``
    """

    kind: Literal["uniform"] = "uniform"
    low: Seconds
    """The shortest delay."""
    high: Seconds
    """The longest delay; above ``low``."""

    @override
    def _check(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} is not below high = {self.high:g}; allowed: low < high")

    @override
    def expectation(self) -> float:
        return self.low + (self.high - self.low) / 2

    @override
    def variance(self) -> float:
        width = self.high - self.low
        return width * width / 12

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.clip((floats(x) - self.low) / (self.high - self.low), 0.0, 1.0)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.clip((self.high - floats(x)) / (self.high - self.low), 0.0, 1.0)

    @override
    def density(self, x: ArrayLike) -> Floats:
        inside = (floats(x) >= self.low) & (floats(x) <= self.high)
        return np.where(inside, 1.0 / (self.high - self.low), 0.0)

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        low, high = exact(self.low), exact(self.high)
        return sympy.Piecewise((0, x < low), ((x - low) / (high - low), x < high), (1, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self.low + (self.high - self.low) * u


# --- by their hazard --------------------------------------------------------------------------------------------------


class ByHazard(Delay):
    """A family by its cumulative hazard H: cdf(x) = 1 − exp(−H(x))."""

    @abstractmethod
    def _hazard(self, x: ArrayLike) -> Floats:
        """Give H at ``x``, elementwise."""

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-self._hazard(x))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.exp(-self._hazard(x))


class Memoryless(ByHazard):
    """A memoryless time, after a fixed one where there is one."""

    if TYPE_CHECKING:  # each kind chooses its place among its keys

        @property
        def mean(self) -> float:
            """Mean of the memoryless part."""

    @property
    def _start(self) -> float:
        return 0.0

    @override
    def expectation(self) -> float:
        return self._start + self.mean

    @override
    def variance(self) -> float:
        return self.mean * self.mean

    @override
    def _hazard(self, x: ArrayLike) -> Floats:
        return np.maximum(floats(x) - self._start, 0.0) / self.mean

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self._start, self.survival(x) / self.mean, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        start = exact(self._start)
        return sympy.Piecewise((0, x < start), (1 - sympy.exp(-(x - start) / exact(self.mean)), True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._start - self.mean * np.log1p(-u)


@final
class Exponential(Memoryless):
    """Memoryless: cdf(x) = 1 − exp(−x / mean).

    Example: ``{kind: exponential, mean: 100 ms}``
    """

    kind: Literal["exponential"] = "exponential"
    mean: PositiveSeconds
    """Mean of the delay."""

    @property
    @override
    def standard(self) -> Exponential:
        return _exponential()


@cache
def _exponential() -> Exponential:
    return Exponential(mean=1.0)


@final
class ShiftedExponential(Memoryless):
    """A fixed time and a memoryless one: cdf(x) = 1 − exp(−(x − shift) / mean) for x ≥ shift.

    Example: ``{kind: shifted_exponential, shift: 20 ms, mean: 80 ms}``
    """

    kind: Literal["shifted_exponential"] = "shifted_exponential"
    shift: Seconds
    """The shortest delay."""
    mean: PositiveSeconds
    """Mean of the exponential part alone; the delay's mean is shift + mean."""

    @property
    @override
    def _start(self) -> float:
        return self.shift

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.shift), Exponential(mean=self.mean)


@final
class Pareto(ByHazard):
    """Pareto, a power-law tail: cdf(x) = 1 − (minimum / x)^shape; give ``minimum`` or ``mean``.

    Examples: ``{kind: pareto, shape: 2.5, mean: 100 ms}``, ``{kind: pareto, shape: 2.5, minimum: 60 ms}``
    """

    kind: Literal["pareto"] = "pareto"
    shape: PositiveNumber
    """Exponent of the tail, above 1 (else the mean is infinite); up to 2 the variance is infinite."""
    minimum: PositiveSeconds | None = None
    """The shortest delay."""
    mean: PositiveSeconds | None = None
    """Mean of the delay."""

    @override
    def _check(self) -> None:
        self._exactly_one("minimum", "mean")
        if self.shape <= 1:
            raise ValueError(f"a mean of inf s follows from the shape {self.shape:g}; allowed: above 1")

    @property
    def _minimum(self) -> float:
        if self.minimum is not None:
            return self.minimum
        assert self.mean is not None
        return self.mean * (self.shape - 1) / self.shape

    @override
    def expectation(self) -> float:
        return self.mean if self.mean is not None else self._minimum * self.shape / (self.shape - 1)

    @override
    def variance(self) -> float:
        if self.shape <= 2:
            return math.inf
        return self._minimum**2 * self.shape / (self.shape - 1) ** 2 / (self.shape - 2)

    @property
    @override
    def tail_index(self) -> float:
        return self.shape

    @override
    def density(self, x: ArrayLike) -> Floats:
        at = np.maximum(floats(x), self._minimum)
        return np.where(floats(x) >= self._minimum, self.shape / at * self.survival(x), 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        shape = exact(self.shape)
        minimum = exact(self.minimum) if self.minimum is not None else exact(self.expectation()) * (shape - 1) / shape
        return sympy.Piecewise((0, x < minimum), (1 - (minimum / x) ** shape, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._minimum * np.exp(-np.log1p(-u) / self.shape)

    @override
    def _hazard(self, x: ArrayLike) -> Floats:
        return self.shape * np.log(np.maximum(floats(x), self._minimum) / self._minimum)
