"""Pairs over seeds: how many times faster one protocol is than another, and its lead at equal virtual times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import pandas as pd

from vflsim.errors import ResultsError
from vflsim.intervals import CONFIDENCE, Interval, band, one_sided, step_values, t_interval, welch_interval
from vflsim.results.run_set import RunSet
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
    confidence = CONFIDENCE if least and most else one_sided()
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


@dataclass(frozen=True)
class Lead:
    """``protocol``'s metric minus ``baseline``'s over ``time_s`` (points,): mean over ``seeds`` and 95 % interval.

    Limits are NaN for one seed. Intervals are pointwise, not simultaneous.
    """

    protocol: str
    baseline: str
    seeds: tuple[int, ...]
    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats

    def share(self, sign: int) -> float:
        """Return the share of points at which the whole interval is above (``sign`` 1) or below (−1) zero."""
        return float(np.mean(self.low > 0 if sign > 0 else self.high < 0))


def leads(
    results: RunSet, protocol: str, metric: str | None = None, times: Sequence[float] | None = None
) -> list[Lead]:
    """Compare ``protocol`` with every other one at ``times`` (default: its evaluations up to the first end of a run).

    Between evaluations a metric (default: the main one) keeps its last value. Baselines without a common finished seed
    are left out. Raises ResultsError for a protocol without a finished run, and for a metric that was not evaluated.
    """
    metric = metric or results.main_metric
    if metric not in results.evaluated:
        raise ResultsError(f"{metric!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    curves = _curves(results, protocol, metric)
    if not curves:
        raise ResultsError(f"{protocol!r} has no finished run", str(results.folder), ", ".join(results.protocols))
    comparisons = []
    for baseline in results.protocols:
        other = _curves(results, baseline, metric) if baseline != protocol else {}
        seeds = tuple(sorted(curves.keys() & other.keys()))
        if seeds:
            pairs = [(curves[seed], other[seed]) for seed in seeds]
            grid = _common(pairs) if times is None else np.asarray(times, dtype=np.float64)
            gaps = np.stack([step_values(*mine, grid) - step_values(*its, grid) for mine, its in pairs])
            comparisons.append(Lead(protocol, baseline, seeds, grid, *band(gaps)))
    return comparisons


def _curves(results: RunSet, protocol: str, metric: str) -> dict[int, tuple[Floats, Floats]]:
    """Return (times, values) of every finished run, by seed."""
    failed = {run.seed for run in results.failed if run.protocol == protocol}
    frame = results.metrics[(results.metrics["protocol"] == protocol) & results.metrics[metric].notna()]
    curves = {}
    for seed in results.seeds:
        rows = frame[frame["seed"] == seed]
        if seed not in failed and len(rows):
            curves[seed] = rows["time_s"].to_numpy(dtype=np.float64), rows[metric].to_numpy(dtype=np.float64)
    return curves


def _common(pairs: Sequence[tuple[tuple[Floats, Floats], tuple[Floats, Floats]]]) -> Floats:
    """List the evaluation times of the first of each pair, up to the earliest end of all runs."""
    end = min(float(x[-1]) for pair in pairs for x, _ in pair)
    grid = np.unique(np.concatenate([mine[0] for mine, _ in pairs]))
    return grid[grid <= end]
