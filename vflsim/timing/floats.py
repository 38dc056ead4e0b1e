"""Arrays of floats, sums that round once, and bisection over their bits: quantiles from a cdf, a cdf from quantiles."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
"""An array of floats. Example: ``def sample(self, u: Floats) -> Floats: return -np.log1p(-u)``."""


def floats(x: ArrayLike) -> Floats:
    """Give ``x`` as a float64 array."""
    return np.asarray(x, dtype=np.float64)


def exact_sum(values: Iterable[float]) -> float:
    """Give the exact sum, rounded once; inf where it is beyond the floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


LARGEST_UNIFORM = 1.0 - 2.0**-53
_STEPS = 4


def first(holds: Callable[[Floats], np.ndarray], low: Floats, high: Floats) -> Floats:
    """Give the smallest float in [low, high] for which ``holds`` is true, elementwise; ``high`` if there is none.

    ``holds`` must be false up to some float and true from there on.
    """
    lower, upper = _ordered((low + 0.0).view(np.int64)), _ordered(high.view(np.int64))
    while np.any(lower < upper):
        middle = (lower >> 1) + (upper >> 1) + (lower & upper & 1)
        met = holds(_ordered(middle).view(np.float64))
        lower, upper = np.where(met, lower, middle + 1), np.where(met, middle, upper)
        lower = np.minimum(lower, upper)
    return _ordered(upper).view(np.float64)


def _ordered(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map the bits of floats to integers in the order of the floats, and back: it is its own inverse."""
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def quantiles(cdf: Callable[[Floats], Floats], support: tuple[float, float], levels: Floats) -> Floats:
    """Give the smallest float x with cdf(x) ≥ level, elementwise: the ends of the support for the levels 0 and 1."""
    shortest, longest = support
    targets = np.atleast_1d(levels).ravel()
    low, high = np.full(targets.shape, shortest), np.full(targets.shape, min(longest, sys.float_info.max))
    for _ in range(_STEPS if longest < sys.float_info.max else 0):
        # The longest time of scaled and shifted atoms may round to a float below them.
        short = (cdf(high) < targets) & (targets < 1)
        if not short.any():
            break
        high = np.where(short, np.nextafter(high, np.inf), high)
    times = first(lambda x: cdf(x) >= targets, low, high)
    times = np.where(targets <= 0, shortest, np.where(targets >= 1, longest, times))
    return times.reshape(np.shape(levels))


def levels_reached(inverse_cdf: Callable[[Floats], Floats], x: ArrayLike) -> Floats:
    """Give the cdf at ``x``, the largest level whose quantile is at most x, elementwise."""
    at = np.atleast_1d(floats(x)).ravel()
    ends = np.stack([np.zeros(at.shape), np.full(at.shape, LARGEST_UNIFORM)])
    above = first(lambda u: inverse_cdf(u) > at, *ends)
    with np.errstate(all="ignore"):
        below_all, above_all = inverse_cdf(ends[0]) > at, inverse_cdf(ends[1]) <= at
    levels = np.where(below_all, 0.0, np.where(above_all, 1.0, above))
    return levels.reshape(np.shape(x))
