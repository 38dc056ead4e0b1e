"""Families of delays by name: truncated normal, log-normal, gamma, Weibull."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import (
    gamma as gamma_function,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    ndtr,
    ndtri,
    xlogy,
    zeta,
)
from typing_extensions import override

from vflsim.timing.delays.base import Delay, exact, from_zero, sympy
from vflsim.timing.delays.basic import ByHazard
from vflsim.timing.floats import Floats, floats
from vflsim.vocabulary import PositiveNumber, PositiveSeconds, Seconds

_WRITTEN_OUT = 16
_SQRT_2PI = math.sqrt(2 * math.pi)


@final
class Normal(Delay):
    """Normal, truncated at 0: ``mean`` and ``sd`` are those before truncation.

    Example: ``{kind: normal, mean: 100 ms, sd: 20 ms}``
    """

    kind: Literal["normal"] = "normal"
    mean: Seconds
    """Mean of the normal distribution before it is truncated; the delay's own mean is larger."""
    sd: PositiveSeconds
    """Standard deviation before truncation; the delay's own is smaller."""

    @property
    def _mass(self) -> float:
        """The probability above 0 before truncation."""
        return float(ndtr(self.mean / self.sd))

    @property
    def _hazard(self) -> float:
        """Density of the standardised law at the cut."""
        return (
            math.exp(-((self.mean / self.sd) ** 2) / 2) / _SQRT_2PI / self._mass if self.mean < 1e9 * self.sd else 0.0
        )

    @override
    def expectation(self) -> float:
        return self.mean + self.sd * self._hazard

    @override
    def variance(self) -> float:
        hazard = self._hazard
        return self.sd * self.sd * (1 - hazard * (hazard + self.mean / self.sd))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        z = self._standard(x)
        below, cut = ndtr(z), ndtr(-self.mean / self.sd)
        return np.asarray(np.where(z > 0, 1 - ndtr(-z) / self._mass, np.maximum(below - cut, 0.0) / self._mass))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.asarray(np.minimum(ndtr(-self._standard(x)) / self._mass, 1.0))

    @override
    def density(self, x: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            bell = np.exp(-(self._standard(x) ** 2) / 2) / (_SQRT_2PI * self.sd * self._mass)
        return np.where(floats(x) >= 0, bell, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        mean, root = exact(self.mean), sympy.sqrt(2) * exact(self.sd)
        cut = sympy.erf(-mean / root)
        return from_zero(x, (sympy.erf((x - mean) / root) - cut) / (1 - cut))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        # Compute from the nearer end, so that rounding loses neither tail.
        low = ndtri(np.minimum(ndtr(-self.mean / self.sd) + u * self._mass, 0.5))
        high = -ndtri(np.minimum((1 - u) * self._mass, 0.5))
        return np.where(u > 0, np.maximum(self.mean + self.sd * np.where(high > 0, high, low), 0.0), 0.0)

    def _standard(self, x: ArrayLike) -> Floats:
        return (np.maximum(floats(x), 0.0) - self.mean) / self.sd


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
        self._exactly_one("median", "mean")

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
        sigma = exact(self.sigma)
        if self.median is not None:
            mu = sympy.log(exact(self.median))
        else:
            mu = sympy.log(exact(self.expectation())) - sigma**2 / 2
        return sympy.Piecewise((0, x <= 0), ((1 + sympy.erf((sympy.log(x) - mu) / (sympy.sqrt(2) * sigma))) / 2, True))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return np.exp(self._mu + self.sigma * ndtri(u))


class ByScaleOrMean(Delay):
    """A family with a shape, and a scale that may follow from the mean."""

    if TYPE_CHECKING:  # each kind chooses their place among its keys

        @property
        def scale(self) -> float | None:
            """Scale of the delay."""

        @property
        def mean(self) -> float | None:
            """Mean of the delay."""

    @property
    @abstractmethod
    def _unit_mean(self) -> float:
        """The mean for a scale of 1 s."""

    @property
    def _scale(self) -> float:
        if self.scale is not None:
            return self.scale
        assert self.mean is not None
        return self.mean / self._unit_mean

    def _exact_scale(self, unit_mean: sympy.Expr) -> sympy.Expr:
        return exact(self.scale) if self.scale is not None else exact(self.expectation()) / unit_mean

    @override
    def expectation(self) -> float:
        return self.mean if self.mean is not None else self._unit_mean * self._scale

    def _scaled(self, x: ArrayLike) -> Floats:
        return np.maximum(floats(x), 0.0) / self._scale


@final
class Gamma(ByScaleOrMean):
    """Gamma (Erlang for a whole ``shape``): give ``mean`` or ``scale``; mean = shape · scale.

    Examples: ``{kind: gamma, shape: 2, mean: 100 ms}``, ``{kind: gamma, shape: 2, scale: 50 ms}``
    """

    kind: Literal["gamma"] = "gamma"
    shape: PositiveNumber
    """Shape; the coefficient of variation is 1 / √shape."""
    mean: PositiveSeconds | None = None
    """Mean of the delay."""
    scale: PositiveSeconds | None = None
    """Scale of the delay."""

    @override
    def _check(self) -> None:
        self._exactly_one("mean", "scale")

    @property
    @override
    def _unit_mean(self) -> float:
        return self.shape

    @override
    def variance(self) -> float:
        return self.expectation() * self._scale

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(gammainc(self.shape, self._scaled(x)))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.asarray(gammaincc(self.shape, self._scaled(x)))

    @override
    def density(self, x: ArrayLike) -> Floats:
        z = self._scaled(x)
        with np.errstate(over="ignore", divide="ignore"):
            height = np.exp(xlogy(self.shape - 1, z) - z - gammaln(self.shape)) / self._scale
        return np.where(floats(x) >= 0, height, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        shape = exact(self.shape)
        # sympy would write a whole (or half) shape out, term by term.
        incomplete = sympy.lowergamma(shape, x / self._exact_scale(shape), evaluate=self.shape < _WRITTEN_OUT)
        return from_zero(x, incomplete / sympy.gamma(shape))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        low = gammaincinv(self.shape, np.minimum(u, 0.5))
        high = gammainccinv(self.shape, np.minimum(1 - u, 0.5))
        return np.asarray(np.where(u < 0.5, low, high) * self._scale)


@final
class Weibull(ByScaleOrMean, ByHazard):
    """Weibull: cdf(x) = 1 − exp(−(x / scale)^shape); give ``scale`` or ``mean``.

    Examples: ``{kind: weibull, shape: 0.7, mean: 100 ms}``, ``{kind: weibull, shape: 0.7, scale: 80 ms}``
    """

    kind: Literal["weibull"] = "weibull"
    shape: PositiveNumber
    """Shape; below 1 the tail is heavier than an exponential one's."""
    scale: PositiveSeconds | None = None
    """The delay that is exceeded with probability 1/e."""
    mean: PositiveSeconds | None = None
    """Mean of the delay."""

    @override
    def _check(self) -> None:
        self._exactly_one("scale", "mean")
        if self._scale == 0:
            raise ValueError(f"a shape of {self.shape:g} is too small for a mean; allowed: above 0.006")

    @property
    @override
    def _unit_mean(self) -> float:
        return float(gamma_function(1 + 1 / self.shape))

    @override
    def variance(self) -> float:
        e = 1 / self.shape
        if e < 1 / 16:
            # ln Γ(1 + 2e) − 2 ln Γ(1 + e) by the series of ln Γ at 1: the plain difference would cancel.
            k = np.arange(2, 32)
            log_ratio = float(np.sum(zeta(k) * (-e) ** k * (2.0**k - 2) / k))
        else:
            log_ratio = float(gammaln(1 + 2 * e) - 2 * gammaln(1 + e))
        factor = math.expm1(log_ratio) if log_ratio < 709 else math.inf
        return self.expectation() ** 2 * factor

    @override
    def density(self, x: ArrayLike) -> Floats:
        z = self._scaled(x)
        with np.errstate(over="ignore", divide="ignore"):
            height = self.shape / self._scale * np.exp(xlogy(self.shape - 1, z) - self._hazard(x))
        return np.where(floats(x) >= 0, height, 0.0)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        shape = exact(self.shape)
        return from_zero(x, 1 - sympy.exp(-((x / self._exact_scale(sympy.gamma(1 + 1 / shape))) ** shape)))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._scale * np.power(-np.log1p(-u), 1 / self.shape)

    @override
    def _hazard(self, x: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.power(self._scaled(x), self.shape)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
