"""What every delay knows about itself.

A delay is sampled by its inverse cdf, so that one uniform gives one delay, and a larger one never a shorter delay. A
delay that could come out negative, infinite or NaN is refused when it is validated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from vflsim.vocabulary import Part

if TYPE_CHECKING:
    import sympy

Floats: TypeAlias = NDArray[np.float64]

_EXTREME_UNIFORMS = np.array([0.0, 1.0 - 2.0**-53])


class Delay(Part, ABC):
    """A distribution of delays in seconds.

    A kind of delay is a final subclass with its own ``kind``. The mean is called ``expectation``, because ``mean`` is
    what several kinds call a parameter.
    """

    @abstractmethod
    def expectation(self) -> float:
        """Give the mean, in seconds."""

    @abstractmethod
    def variance(self) -> float:
        """Give the variance, in seconds squared (inf where it is beyond the floats)."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """Give the probability of a delay of at most ``x`` seconds, elementwise."""

    @abstractmethod
    def support(self) -> tuple[float, float]:
        """Give the shortest and the longest possible delay, in seconds (inf if unbounded)."""

    @abstractmethod
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        """Give the cdf at ``x`` as a sympy expression, parameters as exact rationals."""

    @abstractmethod
    def _inverse(self, u: Floats) -> Floats:
        """Give the inverse cdf, elementwise."""

    def sample(self, u: Floats) -> Floats:
        """Turn uniforms in [0, 1) into delays, elementwise (inverse cdf); all finite and at least 0."""
        return self._inverse(u)

    def quantile(self, q: ArrayLike) -> Floats:
        """Give the smallest x with cdf(x) ≥ q, elementwise, for q in [0, 1]; raises ValueError elsewhere."""
        levels = floats(q)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"a quantile of level {q!r}; allowed: levels from 0 to 1")
        with np.errstate(divide="ignore"):
            return self._inverse(levels)

    def _check(self) -> None:
        """Raise ValueError if the parameters do not go together."""

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        self._check()
        with np.errstate(all="ignore"):
            shortest, longest = self._inverse(_EXTREME_UNIFORMS).tolist()
        for what, seconds in (("delay", shortest), ("delay", longest), ("mean", self.expectation())):
            if not 0 <= seconds < math.inf:
                raise ValueError(f"a {what} of {seconds} s could come out; allowed: finite and at least 0")
        return self


def floats(x: ArrayLike) -> Floats:
    """Give ``x`` as a float64 array."""
    return np.asarray(x, dtype=np.float64)


def exact(value: float) -> sympy.Rational:
    """Give the decimal that a float is written as: 1/10 for 0.1."""
    import sympy

    return sympy.Rational(repr(value))
