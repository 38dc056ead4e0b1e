"""Ratios of times, paired over seeds: how many times faster one protocol is than another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from vflsim.results.statistics.means import CONFIDENCE, one_sided, t_interval, welch_interval


@final
@dataclass(frozen=True)
class Ratio:
    """A ratio of times over ``n`` of ``common`` seeds: the geometric mean and its 95 % interval (NaN for one seed).

    Seeds with a time of 0 have no ratio. ``bound`` is ``exact`` unless some runs did not reach the target. Then
    ``mean`` is a one-sided limit (95 %): the ratio is at ``most`` (runs of the protocol did not reach it) or at
    ``least`` the mean (runs of the baseline did not), or unknown (``none``: both). For one seed the bound is that of
    its two runs. ``of_bounds`` is the 90 % interval of the geometric mean of the seeds' bounds, one of whose ends is
    that limit.
    """

    mean: float
    low: float
    high: float
    n: int
    bound: str = "exact"
    common: int = 0
    of_bounds: tuple[float, float] = (float("nan"), float("nan"))

    def __str__(self) -> str:
        """Format the ratio: ``13.2 (9.1 … 19) ×``, ``< 0.9 ×`` if it is bounded, ``—`` if it is unknown.

        A bound over several seeds has its interval, one end of which is the limit: ``< 0.56 … 0.9 ×``. Seeds without a
        ratio show: ``13.2 (9.1 … 19) × (4 of 5)``.
        """
        if self.bound == "none":
            return "—"
        low, high = self.of_bounds if self.bound != "exact" else (self.low, self.high)
        sign = {"exact": "", "most": "< ", "least": "> "}[self.bound]
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
    A censored time is a lower bound, so with those of one side the ratio has a bound: the one-sided limit of the ratio
    of what is known.
    """
    own, other = (measured[measured["protocol"] == name].set_index("seed") for name in (protocol, baseline))
    if paired:
        seeds = own.index.intersection(other.index)
        own, other = own.loc[seeds], other.loc[seeds]
        usable = (own["value"].to_numpy() > 0) & (other["value"].to_numpy() > 0)
        own, other, common = own[usable], other[usable], len(seeds)
    else:
        common = min(len(own), len(other))
        own, other = (side[side["value"] > 0] for side in (own, other))
    if own.empty or other.empty:
        return None
    late, waiting = bool(own["censored"].any()), bool(other["censored"].any())
    confidence = one_sided() if late or waiting else CONFIDENCE
    times, others = (np.log(side["value"].to_numpy(np.float64)) for side in (own, other))
    found = t_interval(others - times, confidence) if paired else welch_interval(others, times, confidence)
    mean, low, high = (float(each) for each in np.exp([found.mean, found.low, found.high]))
    if not late and not waiting:
        return Ratio(mean, low, high, found.n, common=common)
    bound = "none" if late and waiting else "most" if late else "least"
    limit = mean if found.n < 2 else high if late else low
    return Ratio(limit, float("nan"), float("nan"), found.n, bound, common, (low, high))


def three_digits(value: float, bound: str = "exact") -> str:
    """Format a positive number with three digits: ``0.0123``, ``4.56``, ``12,300``.

    The number of a bound is rounded so that it stays one: up if the truth is at ``most`` the value, down if at
    ``least``.
    """
    if bound in ("most", "least") and math.isfinite(value):
        step = 10.0 ** (math.floor(math.log10(value)) - 2)
        value = (math.ceil if bound == "most" else math.floor)(value / step) * step
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"
