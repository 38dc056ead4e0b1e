"""Delays that vary more than an exponential one: Pareto and hyper-exponential."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from typing_extensions import override

from vflsim.timing.delays.base import Derived, columns, exact, from_zero, sympy
from vflsim.timing.delays.basic import Exponential
from vflsim.timing.delays.families import ByOneOfTwo
from vflsim.timing.floats import Floats, exact_sum, floats
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import MixtureLaw
from vflsim.vocabulary import Fraction01, PositiveNumber, PositiveSeconds

_SUM_TOLERANCE = 1e-9


@final
class Pareto(ByOneOfTwo):
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
    def cdf(self, x: ArrayLike) -> Floats:
        return -np.expm1(self._log_survival(x))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.exp(self._log_survival(x))

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

    def _log_survival(self, x: ArrayLike) -> Floats:
        return -self.shape * np.log(np.maximum(floats(x), self._minimum) / self._minimum)


@final
class HyperExponential(Derived):
    """One of several exponential delays, chosen by chance: more variable than an exponential one of the same mean.

    Example: ``{kind: hyper_exponential, probabilities: [0.9, 0.1], means: [50 ms, 1 s]}``
    """

    kind: Literal["hyper_exponential"] = "hyper_exponential"
    probabilities: Annotated[tuple[Fraction01, ...], Field(min_length=1, max_length=64)]
    """The probability of each of them; they sum to 1."""
    means: Annotated[tuple[PositiveSeconds, ...], Field(min_length=1, max_length=64)]
    """Mean of each, in the same order."""

    @override
    def _check(self) -> None:
        if len(self.probabilities) != len(self.means):
            raise ValueError(
                f"{len(self.probabilities)} probabilities for {len(self.means)} means; allowed: as many as means"
            )
        whole = exact_sum(self.probabilities)
        if abs(whole - 1) > _SUM_TOLERANCE:
            raise ValueError(f"the probabilities sum to {whole:.10g}; allowed: a sum of 1")

    @property
    @override
    def uniforms(self) -> int:
        return 2

    def _shares(self) -> list[tuple[float, float]]:
        """Give probability and mean of each exponential, without those that never come."""
        whole = exact_sum(self.probabilities)
        return [(p / whole, mean) for p, mean in zip(self.probabilities, self.means, strict=True) if p > 0]

    @cached_property
    @override
    def law(self) -> Law:
        return MixtureLaw(tuple((p, Exponential(mean=mean)) for p, mean in self._shares()))

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        whole = sum(map(exact, self.probabilities))
        parts = zip(self.probabilities, self.means, strict=True)
        return from_zero(x, 1 - sum(exact(p) / whole * sympy.exp(-x / exact(mean)) for p, mean in parts))

    @override
    def sample(self, u: Floats) -> Floats:
        shares, means = zip(*self._shares(), strict=True)
        phase = np.searchsorted(np.cumsum(shares[:-1]), columns(u, 0, 1), side="right")
        return -np.take(means, phase) * np.log1p(-columns(u, 1, 1))
