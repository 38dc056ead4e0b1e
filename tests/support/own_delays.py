"""Delays of the tests' own, each with its fields and a single method."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, gammainc

from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats


class Beta(Delay):
    """Known by its quantiles."""

    kind: Literal["beta"] = "beta"
    a: float
    b: float

    def inverse_cdf(self, u: Floats) -> Floats:
        return np.asarray(betaincinv(self.a, self.b, u))


class Erlang(Delay):
    """Known by its cdf: the sum of three exponentials."""

    kind: Literal["erlang"] = "erlang"
    mean: float

    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(gammainc(3, np.maximum(x, 0.0) * 3 / self.mean))


class Lomax(Delay):
    """Known by its cdf, with a power-law tail."""

    kind: Literal["lomax"] = "lomax"
    shape: float

    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-self.shape * np.log1p(np.maximum(x, 0.0)))


class Bounded(Delay):
    """Known by its cdf alone: 1 − (1 − z)^power over the range, uniform for the power 1."""

    kind: Literal["bounded"] = "bounded"
    low: float
    high: float
    power: float

    def cdf(self, x: ArrayLike) -> Floats:
        z = np.clip((np.asarray(x, np.float64) - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.asarray(1 - (1 - z) ** self.power)


class Memoryless(Delay):
    """Known by its quantiles, which are those of the built-in exponential delay."""

    kind: Literal["memoryless"] = "memoryless"
    mean: float

    def inverse_cdf(self, u: Floats) -> Floats:
        return -self.mean * np.log1p(-u)


class Nothing(Delay):
    """A delay that nothing is known of."""

    kind: Literal["nothing"] = "nothing"


class Rounded(Memoryless):
    """Known by both, with a cdf that rounding takes out of [0, 1]."""

    kind: Literal["rounded"] = "rounded"  # type: ignore[assignment]
    offset: float = -5.6e-17

    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-np.maximum(x, 0.0) / self.mean) + self.offset


class Negative(Rounded):
    offset: float = -1e-3


class Falling(Erlang):
    def cdf(self, x: ArrayLike) -> Floats:
        return super().cdf(x) - 0.05 * (np.asarray(x) > self.mean)


class Nan(Rounded):
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(np.asarray(x) > self.mean, np.nan, super().cdf(x))


class Disagreeing(Memoryless):
    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(-np.maximum(x, 0.0) / self.mean / 2)


class WrongMean(Memoryless):
    def expectation(self) -> float:
        return 1.01 * self.mean


class WrongVariance(Lomax):
    def variance(self) -> float:
        return 100.0


class WrongSample(Erlang):
    def sample(self, u: Floats) -> Floats:
        return 1.2 * super().sample(u)


class Restless(Erlang):
    def sample(self, u: Floats) -> Floats:
        return super().sample(np.random.random(np.shape(u)))


class Raising(Erlang):
    def cdf(self, x: ArrayLike) -> Floats:
        raise RuntimeError("no table")
