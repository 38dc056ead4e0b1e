"""The age, in steps, of a client's latest message when the server steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import counts, union


@final
@dataclass(frozen=True)
class Geometric(Law):
    """A number of steps without success: P(A = a) = p (1 − p)^a for a = 0, 1, …."""

    p: float

    @property
    @override
    def support(self) -> tuple[float, float]:
        return 0.0, 0.0 if self.p == 1 else math.inf

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        steps = np.floor(floats(x))
        if self.p == 1:
            return np.where(steps >= 0, 1.0, 0.0)
        return np.where(steps >= 0, -np.expm1((steps + 1) * math.log1p(-self.p)), 0.0)

    @override
    def expectation(self) -> float:
        return (1 - self.p) / self.p

    @override
    def variance(self) -> float:
        return (1 - self.p) / self.p**2

    @override
    def quantile(self, q: ArrayLike) -> Floats:
        levels = floats(q)
        if self.p == 1:
            return np.zeros(levels.shape)
        with np.errstate(divide="ignore"):
            steps = np.ceil(np.log1p(-levels) / math.log1p(-self.p) - 1)
        steps = np.maximum(steps, 0.0)
        return np.asarray(steps + (self.cdf(steps) < levels))


def used_probabilities(laws: Sequence[Law], t: int) -> list[float]:
    """Give for each of independent times the probability that it is among the first t (ties count for none).

    P(m among the t first) = ∫₀¹ P(fewer than t of the others are ≤ Q_m(u)) du, in panels between the kinks. Times that
    differ by rounding alone are ties. All probabilities sum to t, less what ties for the t-th place take away.
    """
    kinks, known = union(laws), dict[Law, float]()
    for m, law in enumerate(laws):
        if law not in known:
            levels = np.concatenate([[0.0, 1.0], law.cdf(kinks), law.cdf(np.nextafter(kinks, -math.inf))])
            ends = np.unique(levels)
            width = np.diff(ends)[:, None]
            u, weights = (ends[:-1, None] + width * _U).ravel(), (width * _W).ravel()
            x = law.quantile(np.minimum(u, 1 - 2.0**-53)) * (1 + ROUNDING)
            others = [other.cdf(x) for j, other in enumerate(laws) if j != m]
            known[law] = min(1.0, float(counts(others, t).sum(axis=0) @ weights))
    return [known[law] for law in laws]


ROUNDING = 1e-12
"""The largest relative difference of times that are sums of the same terms in another order."""


def _double_exponential(step: float, reach: float = 3.2) -> tuple[Floats, Floats]:
    """Give nodes and weights on [0, 1] of the tanh–sinh rule, for singularities at the ends (Takahasi & Mori 1974)."""
    t = np.arange(-reach, reach + step / 2, step)
    nodes = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
    weights = np.cosh(t) * nodes * (1 - nodes)
    return np.minimum(nodes, 1 - 2.0**-53), weights / weights.sum()


_U, _W = _double_exponential(0.09)
