"""Numbers that have no closed form: quantiles by bisection, moments by quadrature of the survival function."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from vflsim.timing.base import Floats


class Law(Protocol):
    """What the methods here need to know of a distribution on [0, inf)."""

    def cdf(self, x: ArrayLike, /) -> Floats:
        """P(X ≤ x)."""

    def survival(self, x: ArrayLike, /) -> Floats:
        """P(X > x)."""

    def density(self, x: ArrayLike, /) -> Floats:
        """The derivative of the cdf."""

    def quantile(self, q: ArrayLike, /) -> Floats:
        """The smallest x with cdf(x) ≥ q."""

    def support(self) -> tuple[float, float]:
        """The shortest and the longest value."""

    def breaks(self) -> Floats:
        """Where the cdf is not smooth."""


_BULK = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_RATIO = 4.0
_TAIL = (0.999, 0.9999, 1 - 1e-6, 1 - 1e-8, 1 - 1e-10, 1 - 1e-13)


def smallest(law: Law, levels: Floats) -> Floats:
    """Give the smallest float x with cdf(x) ≥ level, elementwise: bisection over the bits of the floats.

    Level 0 gives the shortest, level 1 the longest delay.
    """
    shortest, longest = law.support()
    wanted = np.atleast_1d(levels).ravel()
    low = np.full(wanted.shape, shortest + 0.0).view(np.int64)
    high = np.full(wanted.shape, min(longest, sys.float_info.max)).view(np.int64)
    while np.any(low < high):
        middle = low + (high - low) // 2
        enough = law.cdf(middle.view(np.float64)) >= wanted
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        low = np.minimum(low, high)
    found = high.view(np.float64)
    found = np.where(wanted <= 0, shortest, np.where(wanted >= 1, longest, found))
    return found.reshape(np.shape(levels))


@np.errstate(over="ignore")
def grid(law: Law, tail: float = 1e300) -> Floats:
    """Give points above its least value between which a law varies gently: breaks, quantiles, and powers of 4 away
    from the ends, up to ``tail`` if its own is that heavy."""
    shortest, longest = law.support()
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
    points = [law.breaks(), finite, below, above]
    merged: Floats = np.unique(np.concatenate(points))
    return merged[(merged > shortest) & (merged <= longest)]


@cache
def gauss(count: int) -> tuple[Floats, Floats]:
    """Give nodes and weights of Gauss's quadrature over [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def moments(law: Law) -> tuple[float, float]:
    """Give mean and variance about the median c, with nothing to cancel: by Gauss's quadrature of

    E[X] = c + ∫_c (1 − F) − ∫^c F,  E[(X − c)²] = 2 ∫_c (x − c)(1 − F) + 2 ∫^c (c − x) F

    over panels that follow the law's own scale; what lies beyond the floats is taken from the slope of a power-law
    tail, and is infinite if that is too heavy.
    """
    centre = float(law.quantile(0.5))
    edges, (nodes, weights) = np.unique(np.append(grid(law), [centre, law.support()[0]])), gauss(20)
    width = np.diff(edges)
    x = edges[:-1, None] + width[:, None] * nodes
    above, below = np.where(x > centre, law.survival(x), 0.0), np.where(x > centre, 0.0, law.cdf(x))
    with np.errstate(divide="ignore"):
        distance, height = np.log(np.abs(x - centre)), np.log(above + below)
    first = (np.sign(x - centre) * np.exp(height) @ weights * width).sum()
    second = 2 * (np.exp(height + distance) @ weights * width).sum()
    end = float(edges[-1])
    left, further = law.survival(np.array([end, 2 * end])).tolist()
    if further > 0:
        slope = math.log2(left / further)
        first += _tail(1, slope, left, end)
        second += _tail(2, slope, left, end)
    return centre + float(first), float(second - first * first)


def _tail(power: int, slope: float, left: float, end: float) -> float:
    """Give ∫ power · x^(power − 1) · left · (x / end)^(−slope) dx from ``end`` on."""
    if slope <= power:
        return math.inf
    logarithm = math.log(left) + power * math.log(end)
    return power / (slope - power) * math.exp(logarithm) if logarithm < 700 else math.inf
