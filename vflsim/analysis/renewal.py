"""Clients that cycle independently: the rate of the server's steps, and the time between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.errors import TooLargeError
from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import counts, union


def exponential_rate(law: Law) -> float | None:
    """Give the rate of an exponential time; None for any other law."""
    if isinstance(law, OfDelay) and isinstance(law.delay, Exponential) and law.shift == 0:
        return 1 / (law.scale * law.delay.mean)
    return None


def has_settling_phase(law: Law) -> bool:
    """Return whether a renewal process with intervals of ``law`` forgets its beginning.

    A law whose times are multiples of a common step, such as observed times of few digits, never does: it strikes on a
    lattice. Others do, unless they have so few values (ten in a hundred quantiles) that it takes very long.
    """
    if math.isfinite(law.support[1]) and lattice_step(law) >= _FINE * law.expectation() > 0:
        return False
    return len(np.unique(law.quantile(np.linspace(0.005, 0.995, 100)))) > 10


def lattice_step(law: Law) -> float:
    """Give the largest step of which all times are multiples, to within a millionth; 0 for a law that has a density."""
    try:
        atoms = law.atoms()
    except TooLargeError:  # there are too many values for a common step that matters
        return 0.0
    if atoms.mass < 1 - 1e-12:
        return 0.0
    longest, step = float(atoms.values[-1]), 0.0
    for value in atoms.values.tolist():
        rest = value
        while rest > _SAME * longest:  # Euclid's algorithm
            step, rest = rest, step % rest
            if step - rest <= _SAME * longest:
                rest = 0.0
    return step


def pooled_interval(cycles: Sequence[Law]) -> Law | None:
    """Give the law of the time between two steps of a server that steps instantly after every cycle of a client.

    In the long run, over all steps: a step by client m (which a share λ_m / λ of them is) renews m, while the others
    have their stationary residual times to go (Cox & Smith 1954): P(T > x) = Σ_m λ_m/λ · S_m(x) ∏_{j≠m} R_j(x), with
    S_m the survival function of m's cycle, R_j that of j's residual time, λ_m = 1/E C_m and λ = Σ λ_m.
    None if two clients' cycles never get out of phase: then the law depends on their beginning for ever.
    """
    if any(law.expectation() <= 0 for law in cycles):
        return None
    if sum(not has_settling_phase(law) for law in cycles) > 1:
        return None
    return cycles[0] if len(cycles) == 1 else Pooled(tuple(Counter(cycles).items()))


@final
@dataclass(frozen=True)
class Pooled(Law):
    """The time between neighbouring events of independent stationary renewal processes, alike ones counted."""

    groups: tuple[tuple[Law, int], ...]

    @property
    @override
    def support(self) -> tuple[float, float]:
        longest = min(law.support[1] for law, _ in self.groups)
        return (self.groups[0][0].support[0] if sum(n for _, n in self.groups) == 1 else 0.0), longest

    @property
    @override
    def breaks(self) -> Floats:
        return union(law for law, _ in self.groups)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return 1.0 - self.survival(x)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        points = floats(x)
        residuals = [(law.excess(points) / law.expectation()).clip(0.0, 1.0) for law, _ in self.groups]
        total = np.zeros(points.shape)
        for (law, count), residual in zip(self.groups, residuals, strict=True):
            others = residual ** (count - 1)
            for (other, n), chance in zip(self.groups, residuals, strict=True):
                if other is not law:
                    others = others * chance**n
            total += count / law.expectation() * law.survival(points) * others
        return np.asarray(np.where(points < 0, 1.0, np.clip(total * self.expectation(), 0.0, 1.0)))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @property
    @override
    def tail_index(self) -> float:
        return 1 + sum(count * (law.tail_index - 1) for law, count in self.groups)

    @override
    def expectation(self) -> float:
        return 1 / math.fsum(count / law.expectation() for law, count in self.groups)


_FINE = 1e-3
"""The share of the mean below which a common step is ignored: such processes hardly ever coincide."""
_SAME = 1e-6


# --- ages of embeddings -----------------------------------------------------------------------------------------------


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
