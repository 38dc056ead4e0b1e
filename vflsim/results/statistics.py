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
"""Relative difference up to which values count as one constant."""


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` seeds and its interval; ``low`` and ``high`` are NaN if n < 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval: the number after the ±."""
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float] | Floats, confidence: float = CONFIDENCE) -> Interval:
    """Compute the mean and Student-t interval of independent values: x̄ ± t_{n-1, (1+c)/2} · s/√n."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean, low, high = band(array[:, None], confidence)
    return Interval(float(mean[0]), float(low[0]), float(high[0]), array.size)


def welch_interval(values: Floats, others: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Compute the difference of the means of two independent samples, and Welch's interval; NaN unless both have two.

    x̄ − ȳ ± t_ν · √(s_x²/n + s_y²/m), with ν by Welch and Satterthwaite; ``n`` is the smaller size.
    """
    n = min(len(values), len(others))
    mean = float(values.mean() - others.mean()) if n else np.nan
    if n < 2:
        return Interval(mean, np.nan, np.nan, n)
    a, b = (float(each.var(ddof=1)) / len(each) for each in (values, others))
    if a + b == 0:
        return Interval(mean, mean, mean, n)
    freedom = (a + b) ** 2 / (a * a / (len(values) - 1) + b * b / (len(others) - 1))
    half = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(a + b))
    return Interval(mean, mean - half, mean + half, n)


def band(values: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats, Floats]:
    """Compute mean, lower and upper limit over axis 0 (seeds) of an array (n, points); limits are NaN if n < 2."""
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        nothing = np.full_like(mean, np.nan)
        return mean, nothing, nothing
    half = stdtrit(n - 1, (1 + confidence) / 2) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def narrower(values: Floats, others: Floats, confidence: float = CONFIDENCE) -> float:
    """Compute the factor by which pairing narrows the interval of the mean of ``values − others`` (n,).

    It is the ratio of Welch's interval for two independent sets of n runs with the same spread,
    t_ν · √((s_x² + s_y²)/n), to the paired interval t_{n-1} · s_D/√n: about 1/√(1 − ρ) for equal spread and correlation
    ρ. Below 1, pairing widens the interval (ρ < 0; or ρ = 0, with n − 1 instead of 2n − 2 degrees of freedom).
    Infinite if all differences are equal; NaN if n < 2 or nothing varies. The estimate is rough for few pairs.
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
    """Evaluate at ``grid`` the step function that is y[k] from x[k] (ascending) to x[k+1]; NaN before x[0]."""
    at = np.searchsorted(x, grid, side="right") - 1
    return np.where(at >= 0, y[np.maximum(at, 0)], np.nan)
