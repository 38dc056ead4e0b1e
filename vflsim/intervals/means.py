"""Means over seeds with Student-t intervals, their one-sided limits, and step functions on a common grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr, stdtrit

from vflsim.timing.floats import Floats

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Relative difference up to which values count as one constant."""


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` seeds and its interval; ``low`` and ``high`` are NaN if n < 2.

    ``p`` is the p-value of the t test that goes with the interval: that the mean is 0.
    """

    mean: float
    low: float
    high: float
    n: int
    p: float = np.nan

    @property
    def half_width(self) -> float:
        """Half the interval: the number after the ±."""
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float] | Floats, confidence: float = CONFIDENCE) -> Interval:
    """Compute the mean and Student-t interval of independent values: x̄ ± t_{n-1, (1+c)/2} · s/√n."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean, low, high = (float(each[0]) for each in band(array[:, None], confidence))
    return Interval(mean, low, high, array.size, chance(mean, high - mean, array.size - 1, confidence))


def means_by(frame: pd.DataFrame, keys: Sequence[str], column: str) -> pd.DataFrame:
    """Average a column for each value of some keys, in their order: the keys, n, mean, and a t interval: low, high."""
    import pandas as pd  # slow to import

    groups = frame.groupby([*keys], sort=False)
    intervals = [(key, t_interval(group[column].to_numpy())) for key, group in groups]
    rows = [(*key, each.n, each.mean, each.low, each.high) for key, each in intervals]
    return pd.DataFrame(rows, columns=[*keys, "n", "mean", "low", "high"])


def log_interval(values: Sequence[float] | Floats, confidence: float = CONFIDENCE) -> Interval:
    """Compute the geometric mean of positive values, and the Student-t interval of their logarithms.

    Equal values, zeros included, are their own mean and interval.
    """
    array = np.asarray(values, dtype=np.float64)
    if not array.size or np.ptp(array) <= ROUNDING * array.max():
        return t_interval(array[:1].repeat(array.size), confidence)
    interval = t_interval(np.log(array), confidence)
    mean, low, high = (float(each) for each in np.exp([interval.mean, interval.low, interval.high]))
    within = min(max(mean, float(array.min())), float(array.max()))  # equal values have themselves as the mean
    return Interval(within, min(low, within), max(high, within), interval.n)  # NaN stays: it is the first of both


def one_sided(confidence: float = CONFIDENCE) -> float:
    """Return the confidence of the two-sided interval whose ends are one-sided limits of this ``confidence``."""
    return 2 * confidence - 1


def chance(mean: float, half: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the p-value of the t test, with so many degrees of ``freedom``, whose interval is ``mean`` ± ``half``.

    NaN without an interval; an interval without width excludes everything but its mean.
    """
    if np.isnan(half):
        return np.nan
    if half <= ROUNDING * abs(mean):
        return float(mean == 0)
    error = half / float(stdtrit(freedom, (1 + confidence) / 2))
    return float(2 * stdtr(freedom, -abs(mean) / error))


def holm(chances: Floats) -> Floats:
    """Correct p-values (m,) for their number by Holm's step-down method.

    Source: Holm, Scandinavian Journal of Statistics 6(2), 1979.
    """
    order = np.argsort(chances)
    steps = (len(chances) - np.arange(len(chances))) * chances[order]
    corrected = np.empty_like(chances)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected


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
        return Interval(mean, mean, mean, n, float(mean == 0))
    freedom = (a + b) ** 2 / (a * a / (len(values) - 1) + b * b / (len(others) - 1))
    half = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(a + b))
    return Interval(mean, mean - half, mean + half, n, chance(mean, half, freedom, confidence))


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
