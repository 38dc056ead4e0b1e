"""Means over seeds with Student-t intervals, and step functions on a common grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Values that differ by no more than this, relatively, are one constant and its rounding errors."""


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


def narrower(values: Floats, others: Floats, confidence: float = CONFIDENCE) -> float:
    """What pairing is worth: by what factor the interval of the mean of ``values − others`` (n,) is narrower.

    The interval by pairs, t_{n-1} · s_D/√n, is compared with the one that two independent sets of n runs with the same
    spread would give, Welch's t_ν · √((s_x² + s_y²)/n); their ratio is about 1/√(1 − ρ) where both spread alike with
    the correlation ρ. Below 1 pairing has made it wider (ρ < 0; or ρ = 0, and n − 1 degrees of freedom for 2n − 2).
    Infinite where all differences are equal, NaN where n < 2 or nothing varies. An estimate, rough for few pairs.
    """
    n = len(values)
    if n < 2:
        return np.nan
    a, b = float(values.var(ddof=1)), float(others.var(ddof=1))
    spread, tiny = float((values - others).std(ddof=1)), ROUNDING * float(max(abs(values).max(), abs(others).max()))
    if a + b <= tiny * tiny:
        return np.nan
    if spread <= tiny:
        return np.inf
    freedom = (n - 1) * (a + b) ** 2 / (a * a + b * b)
    tail = (1 + confidence) / 2
    return float(stdtrit(freedom, tail) * np.sqrt(a + b) / (stdtrit(n - 1, tail) * spread))


def step_values(x: Floats, y: Floats, grid: Floats) -> Floats:
    """The step function that holds y[k] from x[k] (ascending) to x[k+1], read off at ``grid``; NaN before x[0]."""
    at = np.searchsorted(x, grid, side="right") - 1
    return np.where(at >= 0, y[np.maximum(at, 0)], np.nan)
