"""Ratios of times, paired over seeds: how many times faster one protocol is than another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from vflsim.results.statistics import t_interval, welch_interval


@final
@dataclass(frozen=True)
class Ratio:
    """A ratio of times over ``n`` common seeds: the geometric mean and its 95 % interval (NaN for one seed).

    ``bound`` is ``exact`` unless some runs did not reach the target. Then every seed's ratio has a bound: the ratio is
    at ``most`` the limit (runs of the protocol did not), at ``least`` the limit (runs of the baseline did not), or
    unknown (``none``: both). ``mean`` and the interval's one known end are those of the seeds' bounds.
    """

    mean: float
    low: float
    high: float
    n: int
    bound: str = "exact"

    @property
    def limit(self) -> float:
        """The end of the interval of bounds, beyond which the ratio does not lie; the mean for one seed."""
        end = {"most": self.high, "least": self.low}.get(self.bound, self.mean)
        return self.mean if math.isnan(end) else end

    def __str__(self) -> str:
        """Format the ratio: ``13.2 (9.1 … 19) ×``, ``< 0.9 ×`` if it is bounded, ``—`` if it is unknown."""
        if self.bound == "none":
            return "—"
        text = {"exact": "", "most": "< ", "least": "> "}[self.bound] + three_digits(self.limit)
        if self.low < self.high:
            text += f" ({three_digits(self.low)} … {three_digits(self.high)})"
        return f"{text} ×"


def ratio(measured: pd.DataFrame, protocol: str, baseline: str, paired: bool = True) -> Ratio | None:
    """Compute baseline ÷ protocol over common seeds, from rows of ``outcomes``; None if there are none.

    Runs that are not ``paired`` are independent: the ratio of geometric means over all seeds, with Welch's interval.
    """
    own, other = (measured[measured["protocol"] == name].set_index("seed") for name in (protocol, baseline))
    if paired:
        common = own.index.intersection(other.index)
        own, other = own.loc[common], other.loc[common]
        usable = (own["value"].to_numpy() > 0) & (other["value"].to_numpy() > 0)
        own, other = own[usable], other[usable]
    else:
        own, other = (side[side["value"] > 0] for side in (own, other))
    if own.empty or other.empty:
        return None
    times, others = (side["value"].to_numpy(np.float64) for side in (own, other))
    found = t_interval(np.log(others / times)) if paired else welch_interval(np.log(others), np.log(times))
    mean, low, high = np.exp([found.mean, found.low, found.high])
    late, waiting = bool(own["censored"].any()), bool(other["censored"].any())
    if late or waiting:
        bound = "none" if late and waiting else "most" if late else "least"
        low, high = (low if bound == "least" else math.nan), (high if bound == "most" else math.nan)
        return Ratio(mean, low, high, found.n, bound)
    return Ratio(mean, low, high, found.n)


def three_digits(value: float) -> str:
    """Format a positive number with three digits: ``0.0123``, ``4.56``, ``12,300``."""
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"
