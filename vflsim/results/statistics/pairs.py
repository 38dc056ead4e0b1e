"""Pairs over seeds: how many times faster one protocol is than another."""

import math
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import pandas as pd

from vflsim.intervals import CONFIDENCE, ONE_SIDED, Interval, t_interval, welch_interval
from vflsim.results.statistics.estimates import WIDE
from vflsim.timing.floats import Floats
from vflsim.vocabulary.amounts import Amount, Bound, limit


@final
@dataclass(frozen=True)
class Ratio:
    """A ratio of times over ``n`` of ``common`` seeds: the geometric mean and its 95 % interval (NaN for one seed).

    Seeds with a time of 0 have no ratio. Times to a target lie between two evaluations, and the interval covers the
    ratio wherever they lie. ``bound`` is ``between`` where that alone makes it wide: the mean says nothing then, the
    interval all that is known (for one seed, of its two runs). Otherwise it is ``exact`` unless one end is unknown,
    since some runs did not reach the target, or their first evaluation met it. Then ``mean`` is a one-sided limit
    (95 %): the ratio is at ``most`` or at ``least`` the mean, or unknown (``none``: neither end is known). For one seed
    the bound is that of its two runs. ``of_bounds`` is the 90 % interval of the geometric mean of the seeds' bounds,
    one of whose ends is that limit.
    """

    mean: float
    low: float
    high: float
    n: int
    bound: Literal["exact", "between", "most", "least", "none"] = "exact"
    common: int = 0
    of_bounds: tuple[float, float] = (float("nan"), float("nan"))

    def __str__(self) -> str:
        return str(self.cell)

    @property
    def cell(self) -> Amount | str:
        """The ratio: ``13.2 (9.1 … 19) ×``, ``9.1 … 19 ×``, ``< 0.9 ×`` if it is bounded, or ``undetermined``.

        A bound over several seeds has its interval, one end of which is the limit: ``< 0.56 … 0.9 ×``. Seeds without a
        ratio show: ``13.2 (9.1 … 19) × (4 of 5)``.
        """
        if self.bound == "none":
            return "undetermined"
        bound: Bound = self.bound if self.bound in ("most", "least") else ""
        low, high = self.of_bounds if bound else (self.low, self.high)
        after = f" ({self.n} of {self.common})" if self.n < self.common else ""
        if low < high:
            value = self.mean if self.bound == "exact" else math.nan
            return Amount(value, "×", low=low, high=high, bound=bound, form="three", after=after)
        if bound:
            return replace(limit(bound, self.mean, "×"), form="three", after=after)
        return Amount(self.mean, "×", form="three", after=after)


def ratio(measured: pd.DataFrame, protocol: str, baseline: str, paired: bool = True) -> Ratio | None:
    """Compute baseline ÷ protocol over common seeds, from rows of ``outcomes``; None if there are none.

    Runs that are not ``paired`` are independent: the ratio of geometric means over all seeds, with Welch's interval.
    A time to a target lies between two evaluations, a censored one above a bound. So each seed's ratio has a least and
    a greatest value, and the ratio the limits of their means. One that is unknown leaves a one-sided limit, or none.
    """
    costs, other = (measured[measured["protocol"] == name].set_index("seed") for name in (protocol, baseline))
    common = min(len(costs), len(other))
    if paired:
        seeds = costs.index.intersection(other.index)
        costs, other, common = costs.loc[seeds], other.loc[seeds], len(seeds)
    usable, other_usable = (side["censored"].to_numpy(bool) | (side["value"].to_numpy() > 0) for side in (costs, other))
    if paired:
        usable = other_usable = usable & other_usable
    costs, other = costs[usable], other[other_usable]
    if costs.empty or other.empty:
        return None
    least = not costs["censored"].any() and bool((other["lower"] > 0).all())
    most = not other["censored"].any() and bool((costs["lower"] > 0).all())
    confidence = CONFIDENCE if least and most else ONE_SIDED
    interval = _paired if paired else welch_interval

    def mean_of(others: pd.Series, times: pd.Series) -> Interval:
        with np.errstate(divide="ignore", invalid="ignore"):  # a cost of 0 leaves no limit on its side
            logs = interval(np.log(others.to_numpy(np.float64)), np.log(times.to_numpy(np.float64)), confidence)
        mean, low, high = (float(each) for each in np.exp([logs.mean, logs.low, logs.high]))
        return Interval(mean, low, high, logs.n)

    mean_ratio = mean_of(other["value"], costs["value"])
    lower, upper = mean_of(other["lower"], costs["value"]), mean_of(other["value"], costs["lower"])
    alone, nothing = mean_ratio.n < 2, float("nan")
    if least and most:
        low, high = (lower.mean, upper.mean) if alone else (lower.low, upper.high)
        tie = alone and lower.mean < 1 < upper.mean
        if tie or upper.mean - lower.mean > 2 * WIDE * upper.mean:  # of two costs
            return Ratio(mean_ratio.mean, low, high, mean_ratio.n, "between", common)
        return Ratio(mean_ratio.mean, *((nothing, nothing) if alone else (low, high)), mean_ratio.n, common=common)
    if not least and not most:
        return Ratio(mean_ratio.mean, nothing, nothing, mean_ratio.n, "none", common)
    known = upper if most else lower
    end = known.mean if alone else known.high if most else known.low
    return Ratio(end, nothing, nothing, mean_ratio.n, "most" if most else "least", common, (known.low, known.high))


def _paired(others: Floats, times: Floats, confidence: float) -> Interval:
    return t_interval(others - times, confidence)
