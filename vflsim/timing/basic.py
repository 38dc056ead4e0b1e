"""The simplest delays: a constant, and families of one or two parameters without special functions in the cdf."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from typing_extensions import override

from vflsim.timing.atoms import Atoms
from vflsim.timing.base import Delay, exact
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law, Point
from vflsim.vocabulary import PositiveNumber, PositiveSeconds, Seconds

if TYPE_CHECKING:
    import sympy


@final
class Constant(Delay):
    """Always the same delay.

    Example: ``{kind: constant, value: 5 ms}``
    """

    kind: Literal["constant"] = "constant"
    value: Seconds
    """The delay."""

    @override
    def expectation(self) -> float:
        return self.value

    @override
    def variance(self) -> float:
        return 0.0

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self.value, 1.0, 0.0)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.zeros(np.shape(x))

    @override
    def atoms(self) -> Atoms:
        return Atoms.at(self.value)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        import sympy

        return sympy.Piecewise((0, x < exact(self.value)), (1, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.zeros(np.shape(u)) + self.value


@final
class Exponential(Delay):
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

    @override
    def expectation(self) -> float:
        return self.mean

    @override
    def variance(self) -> float:
        return self.mean * self.mean

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-np.maximum(floats(x), 0.0) / self.mean)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.exp(-np.maximum(floats(x), 0.0) / self.mean)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= 0, self.survival(x) / self.mean, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        import sympy

        return sympy.Piecewise((0, x < 0), (1 - sympy.exp(-x / exact(self.mean)), True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return -self.mean * np.log1p(-u)


@cache
def _exponential() -> Exponential:
    return Exponential(mean=1.0)


@final
class ShiftedExponential(Delay):
    """A fixed time and a memoryless one: cdf(x) = 1 − exp(−(x − shift) / mean) for x ≥ shift.

    Example: ``{kind: shifted_exponential, shift: 20 ms, mean: 80 ms}``
    """

    kind: Literal["shifted_exponential"] = "shifted_exponential"
    shift: Seconds
    """The shortest delay."""
    mean: PositiveSeconds
    """Mean of the exponential part alone; the delay's mean is shift + mean."""

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.shift), Exponential(mean=self.mean)

    @override
    def expectation(self) -> float:
        return self.shift + self.mean

    @override
    def variance(self) -> float:
        return self.mean * self.mean

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-np.maximum(floats(x) - self.shift, 0.0) / self.mean)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.exp(-np.maximum(floats(x) - self.shift, 0.0) / self.mean)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self.shift, self.survival(x) / self.mean, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        import sympy

        shift = exact(self.shift)
        return sympy.Piecewise((0, x < shift), (1 - sympy.exp(-(x - shift) / exact(self.mean)), True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self.shift - self.mean * np.log1p(-u)


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
        import sympy

        low, high = exact(self.low), exact(self.high)
        return sympy.Piecewise((0, x < low), ((x - low) / (high - low), x < high), (1, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self.low + (self.high - self.low) * u


@final
class LogNormal(Delay):
    """The logarithm of the delay is normal with standard deviation ``sigma``; give ``median`` or ``mean``.

    Examples: ``{kind: lognormal, sigma: 0.5, median: 100 ms}``, ``{kind: lognormal, sigma: 0.5, mean: 110 ms}``
    """

    kind: Literal["lognormal"] = "lognormal"
    sigma: PositiveNumber
    """Standard deviation of the logarithm of the delay."""
    median: PositiveSeconds | None = None
    """Median of the delay."""
    mean: PositiveSeconds | None = None
    """Mean of the delay."""

    @override
    def _check(self) -> None:
        if (self.median is None) == (self.mean is None):
            given = "neither 'median' nor 'mean'" if self.median is None else "both 'median' and 'mean'"
            raise ValueError(f"{given} given; allowed: exactly one of them")

    @property
    def _mu(self) -> float:
        """Mean of the logarithm."""
        if self.median is not None:
            return math.log(self.median)
        assert self.mean is not None
        return math.log(self.mean) - self.sigma * self.sigma / 2

    @override
    def expectation(self) -> float:
        return self.mean if self.mean is not None else _exp(self._mu + self.sigma * self.sigma / 2)

    @override
    def variance(self) -> float:
        square = self.sigma * self.sigma
        return _exp(2 * self._mu + 2 * square) * -math.expm1(-square)

    def _standard(self, x: ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return (np.log(np.maximum(floats(x), 0.0)) - self._mu) / self.sigma

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(ndtr(self._standard(x)))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.asarray(ndtr(-self._standard(x)))

    @override
    def density(self, x: ArrayLike) -> Floats:
        at = floats(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            bell = np.exp(-(self._standard(at) ** 2) / 2) / (at * self.sigma * math.sqrt(2 * math.pi))
        return np.where(at > 0, bell, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        import sympy

        sigma = exact(self.sigma)
        if self.median is not None:
            mu = sympy.log(exact(self.median))
        else:
            mu = sympy.log(exact(self.expectation())) - sigma**2 / 2
        return sympy.Piecewise((0, x <= 0), ((1 + sympy.erf((sympy.log(x) - mu) / (sympy.sqrt(2) * sigma))) / 2, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.exp(self._mu + self.sigma * ndtri(u))


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
