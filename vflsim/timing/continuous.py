"""Laws without atoms: the sum of two of them."""

from __future__ import annotations

import math
import sys
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law
from vflsim.timing.quadrature import gauss

_ERROR: Final = 1e-12
_LEAST: Final = 1e-30  # survival at the end of the interpolant, which the slope of the tail continues
_LEAST_OF_DIFFERENCES: Final = 1e-13  # the same where survival is 1 − cdf
_DEGREE: Final = 11
_CHUNK: Final = 64
_BISECTIONS: Final = 80
_APART: Final = 1e-10  # edges, relatively
_PIECES: Final = 1000  # of an interpolant; with more of them, only rounding is left
_BULK = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_RATIO = 4.0
_TAIL = (0.999, 0.9999, 1 - 1e-6, 1 - 1e-8, 1 - 1e-10, 1 - 1e-13)


@np.errstate(over="ignore")
def grid(law: Law, tail: float = 1e300) -> Floats:
    """Give points above the shortest time between which a law varies gently.

    They are its breaks, quantiles, and powers of 4 away from the ends, up to ``tail`` for a heavy tail.
    """
    shortest, longest = law.support
    inner = law.quantile(np.array(_BULK + _TAIL))
    inner = inner[inner > shortest]
    middle = float(inner[min(_BULK.index(0.5), len(inner) - 1)]) - shortest if len(inner) else 1.0
    below = middle * _RATIO ** -np.arange(60.0)
    below = shortest + below[: 2 + int(np.count_nonzero(law.cdf(shortest + below) > 1e-13))]
    if math.isinf(longest):
        end = max(min(tail, sys.float_info.max / 4), 2 * middle)
        steps = 1 + math.ceil(math.log(end, _RATIO) - math.log(middle, _RATIO))
        above = np.ldexp(middle, 2 * np.arange(steps))  # powers of _RATIO that may overflow alone
        above = shortest + above[: 2 + int(np.count_nonzero(law.survival(shortest + above) > 0))]
    else:
        above = longest - (longest - shortest - middle) * _RATIO ** -np.arange(60.0)
        above = above[: 2 + int(np.count_nonzero(law.survival(above) > 1e-13))]
    finite = inner[np.isfinite(inner) & (inner > below[-1])]
    points = [law.breaks, finite, below, above]
    merged: Floats = np.unique(np.concatenate(points))
    return merged[(merged > shortest) & (merged <= longest)]


@final
class ContinuousSum(Law):
    """The sum of two independent continuous times, as precise in its tail as in its bulk.

    With b₀ the least B,

        P(A + B > x) = P(A > x − b₀) + ∫ P(B > x − y) f_A(y) dy

    by Gauss's quadrature over panels that follow both laws' own scales. The logarithm of the survival function is
    interpolated piecewise (Chebyshev, degree 11), to an absolute error below 1e-10 where the densities are bounded.
    """

    def __init__(self, a: Law, b: Law) -> None:
        self._a, self._b = a, b
        self._low, self._high = a.support[0] + b.support[0], a.support[1] + b.support[1]
        self._grid_a, self._grid_b = grid(a), grid(b)
        kinks = np.add.outer(a.breaks, b.breaks).ravel()
        edges = np.unique(np.concatenate([self._grid_a + b.support[0], self._grid_b + a.support[0], kinks]))
        inside = np.unique(np.append(edges[(edges > self._low) & (edges <= self._high)], self._low))
        inside = inside[np.append(True, np.diff(inside) > _APART * inside[1:])]  # a piece of no width has no slope
        self._least = _LEAST if self.precise_tail else _LEAST_OF_DIFFERENCES
        self._fit(inside[: 1 + int(np.count_nonzero(self._by_quadrature(inside) > self._least))])

    @property
    @override
    def precise_tail(self) -> bool:
        return self._a.precise_tail and self._b.precise_tail

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self._low, self._high

    def _fit(self, edges: Floats) -> None:
        count = _DEGREE + 1
        nodes = (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2
        checks = np.linspace(0.03, 0.97, 8)
        places = np.concatenate([nodes, checks])
        to_coefficients = np.linalg.inv(np.polynomial.chebyshev.chebvander(2 * nodes - 1, _DEGREE))
        at_checks = np.polynomial.chebyshev.chebvander(2 * checks - 1, _DEGREE)
        # At the end of a bounded law its logarithm is never smooth, and nobody needs the digits of what is left.
        relative = 1e-9 if math.isinf(self._high) and self.precise_tail else math.inf
        left, right = edges[:-1], edges[1:]
        starts, widths, coefficients = [], [], []
        for bisections in range(_BISECTIONS + 1):
            width = (right - left)[:, None]
            with np.errstate(divide="ignore"):
                values = np.log(np.maximum(self._by_quadrature(left[:, None] + width * places), 1e-300))
            series = values[:, :count] @ to_coefficients.T
            error = np.abs(series @ at_checks.T - values[:, count:])
            tolerated = np.minimum(_ERROR / np.exp(values[:, count:]), relative)
            small = (right - left <= 1e-13 * right) | (bisections == _BISECTIONS or len(left) > _PIECES)
            nothing = np.all(values[:, count:] < math.log(self._least), axis=1)
            # Rounding, or the end of the floats, is no polynomial: a falling line does not swing.
            swings = nothing & np.any(error > tolerated, axis=1)
            first, last = values[swings, 0], np.minimum(values[swings, count - 1], values[swings, 0])
            series[swings] = 0.0
            series[swings, 0], series[swings, 1] = (first + last) / 2, (last - first) / 2
            fine = small | nothing | np.all(error <= tolerated, axis=1)
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
        self._slope = min(float(end * 2 / self._widths[-1] * self._end), 0.0)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self._high, 0.0, np.exp(self._log(floats(x))))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= self._high, 1.0, -np.expm1(self._log(floats(x))))

    @override
    def density(self, x: ArrayLike) -> Floats:
        at = floats(x)
        piece, t = self._place(at)
        derivative = np.polynomial.chebyshev.chebder(self._series, axis=1)
        slope = _clenshaw(derivative[piece], t) * 2 / self._widths[piece]
        slope = np.where(at > self._end, self._slope / np.maximum(at, self._end), slope)
        inside = (at > self._low) & (at < self._high)
        return np.where(inside, np.maximum(-slope * self.survival(at), 0.0), 0.0)

    def _place(self, x: Floats) -> tuple[np.ndarray, Floats]:
        piece = np.clip(np.searchsorted(self._starts, x, side="right") - 1, 0, len(self._starts) - 1)
        return piece, np.clip(2 * (x - self._starts[piece]) / self._widths[piece] - 1, -1, 1)

    def _log(self, x: Floats) -> Floats:
        piece, t = self._place(x)
        inside = np.where(x <= self._low, 0.0, np.minimum(_clenshaw(self._series[piece], t), 0.0))
        return np.where(x > self._end, inside + self._slope * np.log(np.maximum(x, self._end) / self._end), inside)

    def _by_quadrature(self, x: Floats) -> Floats:
        """Give P(A + B > x), elementwise."""
        flat = x.ravel()
        parts = [self._some_by_quadrature(flat[start : start + _CHUNK]) for start in range(0, len(flat), _CHUNK)]
        return np.concatenate(parts).reshape(x.shape) if parts else np.empty(x.shape)

    def _some_by_quadrature(self, x: Floats) -> Floats:
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
        # Below the first point of the grid lies next to nothing, unless the density is infinite there.
        first = self._grid_a[0]
        return a.survival(upper) + inner + a.cdf(first) * b.survival(x - first)


def _clenshaw(series: Floats, t: Floats) -> Floats:
    """Evaluate Chebyshev series, one for every point: ``series`` has shape (…, degree + 1)."""
    after = later = np.zeros(np.shape(t))
    for k in range(series.shape[-1] - 1, 0, -1):
        after, later = series[..., k] + 2 * t * after - later, after
    return series[..., 0] + t * after - later
