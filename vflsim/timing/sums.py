"""The distribution of a sum of independent delays.

A sum is taken apart into *branches*: one for each choice of the mixtures among its parts. Within a branch, constants
and observed values give atoms, exponentials a hypoexponential law in closed form, and what is left is convolved
numerically: survival functions in y-space,

    P(A + B > x) = P(A > x − b₀) + ∫ P(B > x − y) f_A(y) dy,    b₀ = the least B,

by Gauss's quadrature over panels that follow both laws' own scales, interpolated piecewise (Chebyshev, degree 11). The
interpolant's absolute error is below 1e-10 where the densities are bounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincc, gammaln, xlogy

from vflsim.timing.base import Floats, TooLargeError, floats
from vflsim.timing.numeric import Law, gauss, grid, smallest

MAX_ATOMS = 2**21
_ERROR: Final = 1e-12
_LEAST: Final = 1e-30  # where the interpolant ends; beyond it the tail goes on with its slope
_DEGREE: Final = 11
_CONDITION: Final = 1e3  # of partial fractions
_CHUNK: Final = 64
_BISECTIONS: Final = 80
_APART: Final = 1e-10  # edges, relatively
_STAGES: Final = 256  # more than the fewest possible; for means within a factor of 2
_PIECES: Final = 1000  # more are never needed, unless rounding is all that is left


@dataclass(frozen=True)
class Atoms:
    """A discrete law: where, and how likely each."""

    values: Floats
    masses: Floats

    @classmethod
    def none(cls) -> Atoms:
        """Give the discrete part of a law that has none."""
        return cls(np.empty(0), np.empty(0))

    @classmethod
    def merged(cls, values: Floats, masses: Floats) -> Atoms:
        """Give the law with values in order, equal ones as one."""
        unique, where = np.unique(values, return_inverse=True)
        return cls(unique, np.bincount(where.ravel(), masses, len(unique)).astype(np.float64))

    def plus(self, other: Atoms) -> Atoms:
        """Give the law of the sum. Raises TooLargeError if it has too many atoms to be kept."""
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
        """P(X ≤ x)."""
        heights = np.concatenate([[0.0], np.cumsum(self.masses)])
        heights[-1] = self.masses.sum()
        return heights[np.searchsorted(self.values, floats(x), side="right")]


class Numeric(ABC):
    """Base of laws that are known by their survival function."""

    low: float
    high: float

    @abstractmethod
    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x)."""

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X ≤ x)."""
        return 1.0 - self.survival(x)

    @abstractmethod
    def density(self, x: ArrayLike) -> Floats:
        """The derivative of the cdf."""

    def quantile(self, q: ArrayLike) -> Floats:
        """The smallest x with cdf(x) ≥ q."""
        return smallest(self, floats(q))

    def support(self) -> tuple[float, float]:
        """The shortest and the longest value."""
        return self.low, self.high

    def breaks(self) -> Floats:
        """Where the cdf is not smooth."""
        return np.array([end for end in self.support() if math.isfinite(end)])


class Hypoexponential(Numeric):
    """The sum of independent exponentials of the given means."""

    low, high = 0.0, math.inf

    def __init__(self, means: Sequence[float]) -> None:
        self.means = np.sort(np.array(means))
        self._equal = bool(np.all(self.means == self.means[0]))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.means[:, None] / (self.means[:, None] - self.means[None, :])
            np.fill_diagonal(ratios, 1.0)
            self._factors = ratios.prod(axis=1)

    @property
    def stable(self) -> bool:
        """Whether the closed form loses no digits: equal means (Erlang), or means well apart (partial fractions)."""
        return self._equal or bool(np.all(np.isfinite(self._factors)) and np.abs(self._factors).sum() < _CONDITION)

    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x)."""
        at = np.maximum(floats(x), 0.0)
        if self._equal:
            return np.asarray(gammaincc(len(self.means), at / self.means[0]))
        if self.stable:
            return np.asarray(np.clip(np.exp(-at[..., None] / self.means) @ self._factors, 0.0, 1.0))
        stages, masses, rate = self._stages
        return np.asarray(np.minimum(gammaincc(stages, at[..., None] * rate) @ masses, 1.0))

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X ≤ x)."""
        return (
            np.asarray(gammainc(len(self.means), np.maximum(floats(x), 0.0) / self.means[0]))
            if self._equal
            else super().cdf(x)
        )

    def density(self, x: ArrayLike) -> Floats:
        """The derivative of the cdf."""
        at = np.maximum(floats(x), 0.0)
        if self._equal:
            z, count = at / self.means[0], len(self.means)
            height = np.exp(xlogy(count - 1, z) - z - gammaln(count)) / self.means[0]
        elif self.stable:
            height = np.maximum(np.exp(-at[..., None] / self.means) @ (self._factors / self.means), 0.0)
        else:
            stages, masses, rate = self._stages
            z = at[..., None] * rate
            height = np.exp(xlogy(stages - 1, z) - z - gammaln(stages)) @ masses * rate
        return np.where(floats(x) >= 0, height, 0.0)

    @cached_property
    def _stages(self) -> tuple[Floats, Floats, float]:
        """The sum as an Erlang law with a random number of stages: how many, how likely, and their common rate.

        An exponential is a geometric number of faster ones: all terms are positive, where fractions would cancel.
        """
        from scipy.signal import lfilter  # slow to import, and rarely needed

        masses = np.zeros(len(self.means) + _STAGES)
        masses[0] = 1.0
        for ends in self.means[0] / self.means:
            masses = lfilter([0.0, ends], [1.0, ends - 1.0], masses)
        stages = np.flatnonzero(masses > 1e-40)
        return stages.astype(np.float64), masses[stages], 1.0 / float(self.means[0])


class Interpolated(Numeric):
    """A continuous law on [low, high] as a piecewise Chebyshev interpolant of the logarithm of its survival."""

    def __init__(self, survival: Callable[[Floats], Floats], low: float, high: float, edges: Floats) -> None:
        self.low, self.high = low, high
        inside = np.unique(np.append(edges[(edges > low) & (edges <= high)], low))
        inside = inside[np.append(True, np.diff(inside) > _APART * inside[1:])]  # a piece of no width has no slope
        ends = inside[: 1 + int(np.count_nonzero(survival(inside) > _LEAST))]
        self._fit(survival, ends)

    def _fit(self, survival: Callable[[Floats], Floats], edges: Floats) -> None:
        count = _DEGREE + 1
        nodes = (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2
        checks = np.linspace(0.03, 0.97, 8)
        to_coefficients = np.linalg.inv(np.polynomial.chebyshev.chebvander(2 * nodes - 1, _DEGREE))
        at_checks = np.polynomial.chebyshev.chebvander(2 * checks - 1, _DEGREE)
        # At the end of a bounded law its logarithm is never smooth, and nobody needs the digits of what is left.
        relative = 1e-9 if math.isinf(self.high) else math.inf
        left, right = edges[:-1], edges[1:]
        starts, widths, coefficients = [], [], []
        for bisections in range(_BISECTIONS + 1):
            width = (right - left)[:, None]
            with np.errstate(divide="ignore"):
                values = np.log(np.maximum(survival(left[:, None] + width * np.concatenate([nodes, checks])), 1e-300))
            series = values[:, :count] @ to_coefficients.T
            error = np.abs(series @ at_checks.T - values[:, count:])
            tolerated = np.minimum(_ERROR / np.exp(values[:, count:]), relative)
            small = (right - left <= 1e-13 * right) | (bisections == _BISECTIONS or len(left) > _PIECES)
            fine = small | np.all((error <= tolerated) | (values[:, count:] < math.log(_LEAST)), axis=1)
            starts.append(left[fine])
            widths.append((right - left)[fine])
            coefficients.append(series[fine])
            left, right = left[~fine], right[~fine]
            middle = (left + right) / 2
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
            if not len(left):
                break
        order = np.argsort(np.concatenate(starts))
        self._starts = np.concatenate(starts)[order]
        self._widths = np.concatenate(widths)[order]
        self._series = np.concatenate(coefficients)[order]
        self._end = float(self._starts[-1] + self._widths[-1])
        end = np.polynomial.chebyshev.chebder(self._series[-1]).sum()  # every polynomial is 1 at the end
        self._slope = float(end * 2 / self._widths[-1] * self._end)

    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x)."""
        return np.where(floats(x) >= self.high, 0.0, np.exp(self._log(floats(x))))

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X ≤ x)."""
        return np.where(floats(x) >= self.high, 1.0, -np.expm1(self._log(floats(x))))

    def density(self, x: ArrayLike) -> Floats:
        """The derivative of the cdf."""
        at = floats(x)
        piece, t = self._place(at)
        derivative = np.polynomial.chebyshev.chebder(self._series, axis=1)
        slope = _clenshaw(derivative[piece], t) * 2 / self._widths[piece]
        slope = np.where(at > self._end, self._slope / np.maximum(at, self._end), slope)
        inside = (at > self.low) & (at < self.high)
        return np.where(inside, np.maximum(-slope * self.survival(at), 0.0), 0.0)

    def breaks(self) -> Floats:
        """The ends."""
        return np.array([end for end in (self.low, self.high) if math.isfinite(end)])

    def _place(self, x: Floats) -> tuple[np.ndarray, Floats]:
        piece = np.clip(np.searchsorted(self._starts, x, side="right") - 1, 0, len(self._starts) - 1)
        return piece, np.clip(2 * (x - self._starts[piece]) / self._widths[piece] - 1, -1, 1)

    def _log(self, x: Floats) -> Floats:
        piece, t = self._place(x)
        inside = np.where(x <= self.low, 0.0, np.minimum(_clenshaw(self._series[piece], t), 0.0))
        return np.where(x > self._end, inside + self._slope * np.log(np.maximum(x, self._end) / self._end), inside)


def _clenshaw(series: Floats, t: Floats) -> Floats:
    """Evaluate Chebyshev series, one for every point: ``series`` has shape (…, degree + 1)."""
    after = later = np.zeros(np.shape(t))
    for k in range(series.shape[-1] - 1, 0, -1):
        after, later = series[..., k] + 2 * t * after - later, after
    return series[..., 0] + t * after - later


class Convolution:
    """P(A + B > x) for two independent continuous laws, by quadrature."""

    def __init__(self, a: Law, b: Law) -> None:
        self._a, self._b = a, b
        self.low, self.high = a.support()[0] + b.support()[0], a.support()[1] + b.support()[1]
        self._grid_a, self._grid_b = grid(a), grid(b)

    def edges(self) -> Floats:
        """Points that the sum varies between on its own scale."""
        (a, _), (b, _) = self._a.support(), self._b.support()
        kinks = np.add.outer(self._a.breaks(), self._b.breaks()).ravel()
        return np.unique(np.concatenate([self._grid_a + b, self._grid_b + a, kinks]))

    def __call__(self, x: Floats) -> Floats:
        """P(A + B > x), elementwise."""
        flat = x.ravel()
        parts = [self._survival(flat[start : start + _CHUNK]) for start in range(0, len(flat), _CHUNK)]
        return np.concatenate(parts).reshape(x.shape) if parts else np.empty(x.shape)

    def _survival(self, x: Floats) -> Floats:
        a, b, (nodes, weights) = self._a, self._b, gauss(12)
        upper = np.maximum(x - b.support()[0], self._grid_a[0])
        own = np.broadcast_to(self._grid_a, (len(x), len(self._grid_a)))
        edges = np.concatenate([own, x[:, None] - self._grid_b, upper[:, None]], axis=1)
        edges = np.sort(np.clip(edges, self._grid_a[0], upper[:, None]), axis=1)
        width = np.diff(edges, axis=1)
        row, panel = np.nonzero(width > 0)
        y = edges[row, panel][:, None] + width[row, panel][:, None] * nodes
        height = b.survival(x[row][:, None] - y) * a.density(y)
        inner = np.bincount(row, weights=(height @ weights) * width[row, panel], minlength=len(x))
        # Below the first point of the grid lies next to nothing, unless the density is infinite there.
        first = self._grid_a[0]
        return a.survival(upper) + inner + a.cdf(first) * b.survival(x - first)
