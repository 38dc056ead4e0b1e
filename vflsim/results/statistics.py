"""Means over seeds with Student-t intervals, and step functions on a common grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` seeds and the interval around it; ``low`` and ``high`` are NaN where n < 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval, what stands after the ±."""
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float] | Floats, confidence: float = CONFIDENCE) -> Interval:
    """Mean and Student-t interval of independent values: x̄ ± t_{n-1, (1+c)/2} · s/√n."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean, low, high = band(array[:, None], confidence)
    return Interval(float(mean[0]), float(low[0]), float(high[0]), array.size)


def band(values: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats, Floats]:
    """Mean, lower and upper limit over axis 0 (seeds) of an array (n, points); limits are NaN where n < 2."""
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        nothing = np.full_like(mean, np.nan)
        return mean, nothing, nothing
    half = stdtrit(n - 1, (1 + confidence) / 2) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def step_values(x: Floats, y: Floats, grid: Floats) -> Floats:
    """The step function that holds y[k] from x[k] (ascending) to x[k+1], read off at ``grid``; NaN before x[0]."""
    at = np.searchsorted(x, grid, side="right") - 1
    return np.where(at >= 0, y[np.maximum(at, 0)], np.nan)
