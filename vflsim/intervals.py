"""Means with their intervals, over seeds and from within a run, and what a run must show before one counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, Field
from scipy.special import ndtri, stdtr, stdtrit

from vflsim.timing.floats import Floats
from vflsim.vocabulary.amounts import quantity

CONFIDENCE = 0.95
ONE_SIDED = 2 * CONFIDENCE - 1
"""The confidence of the two-sided interval whose ends are one-sided limits of ``CONFIDENCE``."""
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
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
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


CYCLES, PERIODS = 100, 10
"""Random cycles, and fixed periods, that a run must have gone through before an interval from within it counts."""
SKEWED = 25
"""Rounds needed per squared skewness of their durations (Cochran, Sampling Techniques, §2.15)."""
MOST_ROUNDS = 10**9
"""Rounds that no run has: where a mean needs more, ``rounds`` is this."""


class Variation(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Why rounds may vary in ways that a run of ordinary length does not show.

    ``cycle_s`` is the mean time (s) of the slowest change that recurs, named by ``cycle`` (bursts, outages, traces,
    rates), and ``cycles`` how often a run has to see it; 0 and empty without any. ``heavy`` names what has an infinite
    variance; empty without any. ``rounds`` is how many rounds a mean needs because of the delay that ``skewed`` names:
    fewer may miss its rare, long draws. 0 and empty if a few hundred do.
    """

    cycle_s: float = Field(default=0.0, ge=0)
    cycle: str = ""
    cycles: int = Field(default=0, ge=0)
    heavy: str = ""
    rounds: int = Field(default=0, ge=0)
    skewed: str = ""

    @property
    def needed_s(self) -> float:
        """How long the rounds of an interval from within have to last together (s)."""
        return self.cycles * self.cycle_s

    def covers(self, rounds: int, seconds: float) -> bool:
        """Whether an interval from within so many rounds, which last so long together, can be trusted."""
        return not self.heavy and rounds >= self.rounds and seconds >= self.needed_s

    @property
    def never(self) -> bool:
        """Whether no run is ever long enough: no finite variance, or more rounds than any run has."""
        return bool(self.heavy) or self.rounds >= MOST_ROUNDS

    def waits(self) -> str:
        """Say what the stop rule ``precision`` waits for."""
        if self.heavy:
            return f"never ends a run: no variance is known to be finite: {self.heavy}"
        waits = []
        if self.rounds:
            waits.append(f"{self._needed_rounds} rounds, since {self.skewed} is skewed")
        if self.cycles:
            each, lasts = quantity(self.cycle_s, "s"), quantity(self.needed_s, "s")
            waits.append(f"{self.cycles} cycles of {self.cycle} ({each} each), {lasts} of rounds")
        return f"waits for {' and for '.join(waits)}"

    def lacking(self, rounds: int, seconds: float) -> str:
        """Say what an interval from so many rounds, which last so long together, lacks; empty if nothing."""
        if self.heavy:
            return f"no variance is known to be finite: {self.heavy}"
        if self.covers(rounds, seconds):
            return ""
        if rounds < self.rounds:
            return f"{rounds:,} of {self._needed_rounds} rounds, which {self.skewed} needs, since it is skewed"
        seen = int(seconds / self.cycle_s)
        return f"{seen} of {self.cycles} cycles of {self.cycle} ({quantity(self.cycle_s, 's')} each) seen"

    @property
    def _needed_rounds(self) -> str:
        return f"over {MOST_ROUNDS:,}" if self.rounds >= MOST_ROUNDS else f"{self.rounds:,}"


def lacking(variation: Variation | None, rounds: int, seconds: float) -> str:
    """Say what an interval from so many rounds of so many ``seconds`` lacks, if anything is known against it."""
    return "" if variation is None else variation.lacking(rounds, seconds)


_GROUP = 5  # of MSER-5
BATCHES = 40
"""Batches of a mean; half as many, twice as long, if neighbouring batches are correlated."""
FEWEST = 5
"""Fewest batches that a mean is taken over."""
LEVEL = 0.95
"""Confidence of the one-sided test for correlated neighbouring batches."""


@dataclass(frozen=True)
class SteadyMean:
    """The mean of a sequence in its steady state, with an interval from within the sequence.

    ``low`` and ``high`` are NaN if fewer than ``BATCHES`` values are left. ``n`` values count, after ``warm_up``
    removed ones. ``lag1`` is the autocorrelation of neighbouring batch means (of ``batches`` batches; NaN if all are
    equal); ``correlated`` is True if it is significant, and the interval too narrow. ``settled`` is False if the
    warm-up seems to reach into the second half: there may be no steady state yet. ``enough`` is False if the scenario
    is known to vary in ways that the values cannot show: more slowly, or without a finite variance. As the mean of
    ``independent`` independent values would vary, so does theirs, ``n`` at most.
    """

    mean: float
    low: float
    high: float
    n: int
    warm_up: int
    batches: int
    lag1: float
    correlated: bool
    settled: bool
    enough: bool = True
    independent: float = 0.0

    @property
    def half_width(self) -> float:
        """Half the interval: the number after the ±."""
        return (self.high - self.low) / 2

    @property
    def seconds(self) -> float:
        """How long the values that count last together, if they are durations (s)."""
        return self.n * self.mean

    @property
    def sound(self) -> bool:
        """Whether there is an interval that is settled and uncorrelated, of enough values."""
        return self.settled and not self.correlated and self.enough and self.low == self.low


def steady_mean(values: Floats, confidence: float = CONFIDENCE, variation: Variation | None = None) -> SteadyMean:
    """Estimate the mean of a sequence (n,) in its steady state, with a Student-t interval from batch means.

    Remove the warm-up (:func:`warm_up`), cut the rest into 40 batches of one length (drop the remainder in front), and
    take the batch means for independent and normal. If von Neumann's ratio rejects this (5 %, one-sided), join
    neighbours to 20 batches and test again. ``variation`` is what the scenario says of the values, as durations (s).
    Source: Law, Simulation Modeling and Analysis, §9.5; von Neumann (1941) for the ratio and its variance.
    """
    removed, settled = warm_up(values)
    steady = values[removed:]
    if len(steady) < BATCHES:
        mean = float(steady.mean()) if len(steady) else np.nan
        return SteadyMean(mean, np.nan, np.nan, len(steady), removed, 0, np.nan, False, settled)
    means, lag1, correlated = batch_means(steady)
    interval, n = t_interval(means, confidence), len(steady) // BATCHES * BATCHES
    enough = variation is None or variation.covers(n, n * interval.mean)
    cut, batches, spread = len(values) - n, len(means), float(steady[len(steady) - n :].var())
    # By how much the variance of batch means exceeds that of means of independent values.
    inflation = max(1.0, n / batches * float(means.var(ddof=1)) / spread) if spread > 0 else 1.0
    ends = interval.mean, interval.low, interval.high
    return SteadyMean(*ends, n, cut, batches, lag1, correlated, settled, enough, independent=n / inflation)


def batch_means(values: Floats, most: int = BATCHES) -> tuple[Floats, float, bool]:
    """Compute the means of ``most`` batches of a sequence (at least as many values), or of half if correlated.

    Also returns their :func:`neighbours`. Batches have one length, what is left over in front is dropped.
    """
    length = len(values) // most
    means = values[len(values) - most * length :].reshape(most, length).mean(axis=1)
    if constant(means):  # as of cycles that fit into a batch: what rounding leaves is no correlation
        means[:] = means[0]
    lag1, correlated = neighbours(means)
    if correlated and most >= 2 * FEWEST:
        means = means[most % 2 :].reshape(-1, 2).mean(axis=1)
        lag1, correlated = neighbours(means)
    return means, lag1, correlated


def warm_up(values: Floats) -> tuple[int, bool]:
    """Count the warm-up values at the beginning by MSER-5, and tell whether the rest looks settled.

    MSER-5 averages groups of 5 and cuts where the standard error of the rest, (1/(m−d)²) Σ_{j>d} (Z_j − Z̄)², is
    smallest; a cut at the end of the first half means that the sequence has not settled. It uses the values' ranks: on
    the values themselves it tends to cut off the largest ones of a heavy tail, and biases the mean. It cuts nothing off
    fewer than ``BATCHES`` values.
    Sources: White, Simulation 69(6), 1997; White, Cobb and Spratt, WSC 2000; ranks: this package.
    """
    groups = len(values) // _GROUP
    if len(values) < BATCHES or constant(values):
        return 0, True
    means = ranks(values[: groups * _GROUP]).reshape(groups, _GROUP).mean(axis=1)
    means -= means.mean()  # the sums of squares below would cancel otherwise
    remaining = np.arange(groups, 0, -1)
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (means, means * means))
    error = (squares - sums * sums / remaining) / (remaining * remaining.astype(np.float64))
    last = groups // 2
    cut = int(error[: last + 1].argmin())
    return cut * _GROUP, cut < last


def neighbours(means: Floats) -> tuple[float, bool]:
    """Compute the lag-1 autocorrelation of a sequence (k,) by von Neumann's ratio, and test whether it exceeds 0.

    C = 1 − Σ (x_{j+1} − x_j)² / (2 Σ (x_j − x̄)²) has mean 0 and variance (k−2)/(k²−1) if the x are independent normal.
    NaN (and not significant) if all are equal.
    """
    count = len(means)
    spread = float(((means - means.mean()) ** 2).sum())
    if spread == 0 or count < 3:
        return np.nan, False
    ratio = 1 - float((np.diff(means) ** 2).sum()) / (2 * spread)
    return ratio, ratio > float(ndtri(LEVEL)) * np.sqrt((count - 2) / (count**2 - 1))


def ranks(values: Floats) -> Floats:
    """Return each value's position in ascending order, from 0; equal values share their mean position."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[place]


def constant(values: Floats) -> bool:
    """Whether all values of a sequence are equal up to rounding."""
    low, high = float(values.min()), float(values.max())
    return high - low <= ROUNDING * max(abs(low), abs(high))
