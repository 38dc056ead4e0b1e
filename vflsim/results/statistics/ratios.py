"""Ratios of times, paired over seeds: how many times faster one protocol is than another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from vflsim.intervals.means import CONFIDENCE, ROUNDING, Interval, one_sided, t_interval, welch_interval
from vflsim.results.statistics.estimates import WIDE
from vflsim.timing.floats import Floats


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
    bound: str = "exact"
    common: int = 0
    of_bounds: tuple[float, float] = (float("nan"), float("nan"))

    def __str__(self) -> str:
        """Format the ratio: ``13.2 (9.1 … 19) ×``, ``9.1 … 19 ×``, ``< 0.9 ×`` if it is bounded, or ``undetermined``.

        A bound over several seeds has its interval, one end of which is the limit: ``< 0.56 … 0.9 ×``. Seeds without a
        ratio show: ``13.2 (9.1 … 19) × (4 of 5)``.
        """
        if self.bound == "none":
            return "undetermined"
        low, high = self.of_bounds if self.bound in ("most", "least") else (self.low, self.high)
        sign = {"most": "< ", "least": "> "}.get(self.bound, "")
        if not low < high:
            text = sign + three_digits(self.mean, self.bound)
        elif self.bound == "exact":
            text = f"{three_digits(self.mean)} ({three_digits(low)} … {three_digits(high)})"
        else:
            text = f"{sign}{three_digits(low, 'least')} … {three_digits(high, 'most')}"
        return f"{text} ×" + (f" ({self.n} of {self.common})" if self.n < self.common else "")


def ratio(measured: pd.DataFrame, protocol: str, baseline: str, paired: bool = True) -> Ratio | None:
    """Compute baseline ÷ protocol over common seeds, from rows of ``outcomes``; None if there are none.

    Runs that are not ``paired`` are independent: the ratio of geometric means over all seeds, with Welch's interval.
    A time to a target lies between two evaluations, a censored one above a bound. So each seed's ratio has a least and
    a greatest value, and the ratio the limits of their means. One that is unknown leaves a one-sided limit, or none.
    """
    own, other = (measured[measured["protocol"] == name].set_index("seed") for name in (protocol, baseline))
    common = min(len(own), len(other))
    if paired:
        seeds = own.index.intersection(other.index)
        own, other, common = own.loc[seeds], other.loc[seeds], len(seeds)
    usable, other_usable = (side["censored"].to_numpy(bool) | (side["value"].to_numpy() > 0) for side in (own, other))
    if paired:
        usable = other_usable = usable & other_usable
    own, other = own[usable], other[other_usable]
    if own.empty or other.empty:
        return None
    least = not own["censored"].any() and bool((other["lower"] > 0).all())
    most = not other["censored"].any() and bool((own["lower"] > 0).all())
    confidence = CONFIDENCE if least and most else one_sided()
    interval = _paired if paired else welch_interval

    def mean_of(others: pd.Series, times: pd.Series) -> Interval:
        with np.errstate(divide="ignore", invalid="ignore"):  # a cost of 0 leaves no limit on its side
            found = interval(np.log(others.to_numpy(np.float64)), np.log(times.to_numpy(np.float64)), confidence)
        mean, low, high = (float(each) for each in np.exp([found.mean, found.low, found.high]))
        return Interval(mean, low, high, found.n)

    found = mean_of(other["value"], own["value"])
    lower, upper = mean_of(other["lower"], own["value"]), mean_of(other["value"], own["lower"])
    alone, nothing = found.n < 2, float("nan")
    if least and most:
        low, high = (lower.mean, upper.mean) if alone else (lower.low, upper.high)
        tie = alone and lower.mean < 1 < upper.mean
        if tie or upper.mean - lower.mean > 2 * WIDE * upper.mean:  # of two costs
            return Ratio(found.mean, low, high, found.n, "between", common)
        return Ratio(found.mean, *((nothing, nothing) if alone else (low, high)), found.n, common=common)
    if not least and not most:
        return Ratio(found.mean, nothing, nothing, found.n, "none", common)
    known, bound = (upper, "most") if most else (lower, "least")
    limit = known.mean if alone else known.high if most else known.low
    return Ratio(limit, nothing, nothing, found.n, bound, common, (known.low, known.high))


def _paired(others: Floats, times: Floats, confidence: float) -> Interval:
    return t_interval(others - times, confidence)


def three_digits(value: float, bound: str = "exact") -> str:
    """Format a positive number with three digits: ``0.0123``, ``4.56``, ``12,300``.

    The number of a bound is rounded so that it stays one: up if the truth is at ``most`` the value, down if at
    ``least``.
    """
    if bound in ("most", "least") and math.isfinite(value):
        step = 10.0 ** (math.floor(math.log10(value)) - 2)
        value = (math.ceil(value / step - ROUNDING) if bound == "most" else math.floor(value / step + ROUNDING)) * step
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"
