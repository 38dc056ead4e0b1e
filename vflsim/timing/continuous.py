"""Continuous laws with fast cdfs, and the sums of two of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.chebyshev import Panels, Piecewise
from vflsim.timing.floats import Floats, floats
from vflsim.timing.interpolation import Interpolated
from vflsim.timing.law import Law
from vflsim.timing.quadrature import gauss

_ERROR: Final = 4e-13
_ERROR_OF_MORE: Final = 5e-12  # where panels of an interpolant are the grain of the next one
_NOISE: Final = 1e-11
_LEAST: Final = 1e-30  # survival at the end of the interpolant, which the slope of the tail continues
_LEAST_OF_DIFFERENCES: Final = 1e-13  # the same where survival is 1 − cdf
_SMALLEST: Final = 1e-300
_NOTHING: Final = 1e-34
_CELLS: Final = 2**17  # panels of a quadrature that are made at once
MOST_KINKS: Final = 512
"""Sums of breaks that are followed exactly."""
_APART: Final = 1e-10  # edges, relatively
_EVERY: Final = 4  # of the points between which both laws vary gently, as panels to begin with
_PIECES: Final = 1000  # of an interpolant; with more of them, only rounding is left
_BULK = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_RATIO = 4.0
_TAIL = (0.999, 0.9999, 1 - 1e-6, 1 - 1e-8, 1 - 1e-10, 1 - 1e-13)


@np.errstate(over="ignore")
def grid(law: Law, tail: float = 1e300) -> Floats:
    """Return points between which a law varies slowly; almost no probability lies below the first of them.

    They are its breaks, quantiles, and powers of 4 away from the ends, up to ``tail`` for a heavy tail; of a mixture,
    those of its parts; of an interpolant, its panels.
    """
    shortest, longest = law.support
    if isinstance(law, Fitted | Interpolated):
        return law.edges
    if len(parts := law.alternatives()) > 1:
        grids = [grid(part, tail) for _, part in parts]
        each = np.unique(np.concatenate([*grids, *(floats(part.support) for _, part in parts)]))
        return floats(each[(each >= min(points[0] for points in grids)) & (each < math.inf)])
    inner = law.quantile(np.array(_BULK + _TAIL))
    inner = inner[inner > shortest]
    middle = float(inner[min(_BULK.index(0.5), len(inner) - 1)]) - shortest if len(inner) else 1.0
    below = middle * _RATIO ** -np.arange(60.0)
    below = shortest + below[: 2 + int(np.count_nonzero(law.cdf(shortest + below) > 1e-13))]
    if math.isinf(longest):
        end = max(min(tail, sys.float_info.max / 4), 2 * middle)
        steps = 1 + math.ceil(math.log(end, _RATIO) - math.log(middle, _RATIO))
        above = np.ldexp(middle, 2 * np.arange(steps))  # powers of _RATIO that may overflow alone
        above = shortest + above[: 2 + int(np.count_nonzero(law.survival(shortest + above) > _NOTHING))]
    else:
        above = longest - (longest - shortest - middle) * _RATIO ** -np.arange(60.0)
        above = above[: 2 + int(np.count_nonzero(law.survival(above) > 1e-13))]
    finite = inner[np.isfinite(inner) & (inner > below[-1])]
    points = [law.breaks, finite, below, above]
    merged: Floats = np.unique(np.concatenate(points))
    return merged[(merged > shortest) & (merged <= longest)]


@final
class Fitted(Law):
    """A continuous law, as precise in its tail as in its bulk, with a fast cdf and a density.

    The logarithm of its survival function is a Chebyshev series on panels; beyond them it is a straight line in the
    logarithm of time.
    """

    def __init__(self, survival: Callable[[Floats], Floats], edges: Floats, law: Law, error: float = _ERROR) -> None:
        """Interpolate ``survival`` between ``edges``. ``law`` has the same distribution; its cdf is not asked for."""
        self._law, (self._low, self._high), self._error = law, law.support, max(error, 0.1 * law.accuracy)
        self._least = _LEAST if self.precise_tail else _LEAST_OF_DIFFERENCES
        inside = np.unique(np.append(edges[(edges > self._low) & (edges <= self._high)], self._low))
        inside = inside[np.append(True, np.diff(inside) > _APART * inside[1:])]  # a piece of zero width has no slope
        inside = inside[: 1 + max(1, int(np.count_nonzero(survival(inside) > self._least)))]

        def logarithm(x: Floats) -> Floats:
            return np.log(np.maximum(survival(x), _SMALLEST))

        self._logarithm = Piecewise.of(logarithm, inside, self._allowed, _NOISE, _PIECES)
        self._end = float(self._logarithm.edges[-1])
        self._slope = min(float(self._logarithm.derivative(floats([self._end]))[0]) * self._end, 0.0)

    @property
    def edges(self) -> Floats:
        """The ends of the panels."""
        return self._logarithm.edges

    @property
    @override
    def precise_tail(self) -> bool:
        return self._law.precise_tail

    @property
    @override
    def accuracy(self) -> float:
        return self._law.accuracy

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self._low, self._high

    @property
    @override
    def breaks(self) -> Floats:
        return self._law.breaks

    @override
    def expectation(self) -> float:
        return self._law.expectation()

    @override
    def variance(self) -> float:
        return self._law.variance()

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self._high, 0.0, np.exp(self._log(floats(x))))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self._high, 1.0, -np.expm1(self._log(floats(x))))

    @override
    def density(self, x: ArrayLike) -> Floats:
        at = floats(x)
        slope = np.where(at > self._end, self._slope / np.maximum(at, self._end), self._logarithm.derivative(at))
        inside = (at > self._low) & (at < self._high)
        return np.where(inside, np.maximum(-slope * self.survival(at), 0.0), 0.0)

    def _log(self, x: Floats) -> Floats:
        inside = np.where(x <= self._low, 0.0, np.minimum(self._logarithm(x), 0.0))
        if not (x > self._end).any():
            return inside
        return np.where(x > self._end, inside + self._slope * np.log(np.maximum(x, self._end) / self._end), inside)

    def _allowed(self, panels: Panels) -> Floats:
        """Give the errors of the logarithm that are small; replace a series of rounding by a falling line."""
        values, error = panels.values, panels.error
        # At the end of a bounded law the logarithm is never smooth, and the remaining probability needs no digits.
        # An error of 1 leaves it as small; a larger one could make it large.
        relative = 1e-9 if math.isinf(self._high) and self.precise_tail else 1.0
        allowed = np.minimum(self._error / np.exp(values.max(axis=1)), relative)
        nothing = (values.max(axis=1) < math.log(10 * self._least)) & (values.min(axis=1) < math.log(self._least))
        swings = nothing & (error > allowed)
        first, last = values[swings, -1], np.minimum(values[swings, 0], values[swings, -1])  # nodes descend
        panels.series[:, swings] = 0.0
        panels.series[0, swings], panels.series[1, swings] = (first + last) / 2, (last - first) / 2
        return np.where(nothing, math.inf, allowed)


def fitted(law: Law) -> Law:
    """Give a continuous law with a fast cdf."""
    points = grid(law)
    return Fitted(law.survival, np.concatenate([points[::_EVERY], points[-1:], law.breaks]), law)


def convolved(a: Law, b: Law) -> Law:
    """Give the law of the sum of two independent continuous times. The density of ``b`` is not needed."""
    together = Convolution(a, b)
    error = _ERROR_OF_MORE if isinstance(a, Fitted) or isinstance(b, Fitted) else _ERROR
    return Fitted(together.survival, together.edges, together, error)


@final
class Convolution(Law):
    """The sum of two independent continuous times, with a slow survival function. With b₀ the least B,

        P(A + B > x) = P(A > x − b₀) + ∫ P(B > x − y) f_A(y) dy

    by Gauss's quadrature over panels that follow both laws' own scales, to an absolute error below 1e-10 where the
    densities are bounded.
    """

    def __init__(self, a: Law, b: Law) -> None:
        self._a, self._b = a, b
        self._grid_a, self._grid_b = grid(a), grid(b)

    @property
    def edges(self) -> Floats:
        """Points between which the law varies slowly, except in some panels that have to be halved."""
        low_a, low_b = self._a.support[0], self._b.support[0]
        edges = np.unique(np.concatenate([self._grid_a + low_b, self._grid_b + low_a]))
        end = self._grid_a[-1] + self._grid_b[-1]  # almost no probability lies beyond it
        return np.concatenate([edges[::_EVERY], edges[-1:], self.breaks, [end]])

    @property
    @override
    def breaks(self) -> Floats:
        """The sums of both laws' breaks, where the law has no kinks but is not smooth."""
        one, two = self._a.breaks, self._b.breaks
        if len(one) * len(two) > MOST_KINKS:
            one, two = one[[0, -1]], two[[0, -1]]
        return np.unique(np.add.outer(one, two))

    @property
    @override
    def support(self) -> tuple[float, float]:
        (low_a, high_a), (low_b, high_b) = self._a.support, self._b.support
        return low_a + low_b, high_a + high_b

    @property
    @override
    def precise_tail(self) -> bool:
        return self._a.precise_tail and self._b.precise_tail

    @property
    @override
    def accuracy(self) -> float:
        return max(self._a.accuracy, self._b.accuracy)

    @override
    def expectation(self) -> float:
        return self._a.expectation() + self._b.expectation()

    @override
    def variance(self) -> float:
        return self._a.variance() + self._b.variance()

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return 1.0 - self.survival(x)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        flat, chunk = floats(x).ravel(), max(1, _CELLS // (len(self._grid_a) + len(self._grid_b)) // 12)
        parts = [self._some(flat[start : start + chunk]) for start in range(0, len(flat), chunk)]
        return np.concatenate(parts).reshape(np.shape(x)) if parts else np.empty(np.shape(x))

    def _some(self, x: Floats) -> Floats:
        a, b, (nodes, weights) = self._a, self._b, gauss(12)
        upper = np.maximum(x - b.support[0], self._grid_a[0])
        own = np.broadcast_to(self._grid_a, (len(x), len(self._grid_a)))
        edges = np.concatenate([own, x[:, None] - self._grid_b, upper[:, None]], axis=1)
        edges = np.sort(np.clip(edges, self._grid_a[0], upper[:, None]), axis=1)
        width = np.diff(edges, axis=1)
        row, panel = np.nonzero(width > 0)
        y = edges[row, panel][:, None] + width[row, panel][:, None] * nodes
        height = b.survival(x[row][:, None] - y) * a.density(y)
        inner = np.bincount(row, weights=(height @ weights) * width[row, panel], minlength=len(x))
        # Almost no probability lies below the first point of the grid, unless the density is infinite there.
        first = self._grid_a[0]
        return a.survival(upper) + inner + a.cdf(first) * b.survival(x - first)
