"""Estimates of one number from several runs, some of which may be censored, and how finely evaluations tell costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsim.intervals import CONFIDENCE, ONE_SIDED, Interval, log_interval, narrower, t_interval, welch_interval
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.quantiles import order_statistics
from vflsim.timing.floats import Floats
from vflsim.vocabulary.amounts import Amount, limit, quantity, share as shared, span, spanned, with_words
from vflsim.vocabulary.metrics import column_of
from vflsim.vocabulary.targets import Target

MEAN = "mean"
GEOMETRIC = "geometric mean"
SYMMETRIC = 1.25
"""Ratio of an interval's sides up to which ± stands for both."""
WIDE = 0.1
"""Share of a cost above which the interval between two evaluations, in which the target was met, is wide."""


@dataclass(frozen=True)
class SeedSample:
    """One number from every run, in the order of ``seeds``: (seeds,).

    ``censored`` values are lower bounds. Every other number lies above the one of ``before`` (None: they are equal),
    up to its value: a cost is known from two evaluations, the last before the target was met, and the first that met
    it.
    """

    seeds: tuple[int, ...]
    values: Floats
    censored: npt.NDArray[np.bool_]
    before: Floats | None = None

    @classmethod
    def exact(cls, by_seed: Mapping[int, float]) -> SeedSample:
        """Return a sample without censored values."""
        values = np.array([*by_seed.values()], dtype=np.float64)
        return cls((*by_seed,), values, np.zeros(len(values), dtype=np.bool_))

    @classmethod
    def of(cls, rows: pd.DataFrame, cost: bool = True) -> SeedSample:
        """Return the sample of some outcomes; a ``cost`` lies above its lower end."""
        values, lower = (rows[name].to_numpy(np.float64) for name in ("value", "lower"))
        return cls((*rows["seed"],), values, rows["censored"].to_numpy(np.bool_), lower if cost else None)

    @property
    def lower(self) -> Floats:
        """The lower ends, (seeds,)."""
        return self.values if self.before is None else self.before

    @property
    def known(self) -> bool:
        """Whether there are runs, and none is censored."""
        return bool(len(self.values)) and not self.censored.any()

    def only(self, seeds: Iterable[int]) -> SeedSample:
        """Return the numbers of these seeds, in this sample's order."""
        common = set(seeds)
        kept = [position for position, seed in enumerate(self.seeds) if seed in common]
        before = None if self.before is None else self.before[kept]
        return SeedSample(tuple(self.seeds[each] for each in kept), self.values[kept], self.censored[kept], before)


@dataclass(frozen=True)
class Estimate:
    """Estimate of one number from several runs, some of which may be lower bounds (censored).

    Costs lie between two evaluations: ``mean`` is that of the later ones, and ``low``–``high`` covers the mean wherever
    the costs lie. What does not apply is NaN.
    """

    n: int
    """Number of runs."""
    reached: int
    """Number of runs that reached the target, or whose value is known."""
    mean: float = np.nan
    """Mean over seeds; none where a run is censored."""
    low: float = np.nan
    """Lower end of its 95 % interval (Student's t), which ends where the metric does: at 0 and 1 for shares."""
    high: float = np.nan
    """Its upper end."""
    at_least: float = np.nan
    """One-sided 95 % lower limit of the mean where runs are censored; the bound itself for a single run."""
    at_most: float = np.nan
    """One-sided 95 % upper limit."""
    horizon: float = np.nan
    """Earliest point at which a censored run could have reached the target."""
    narrower: float = np.nan
    """Of a paired difference: how much narrower its interval is than one from independent runs."""
    median: float = np.nan
    """Median of the runs that reached the target, where others did not."""
    median_low: float = np.nan
    """Lower end of its 95 % interval, from six runs on."""
    median_high: float = np.nan
    """Its upper end."""
    p: float = np.nan
    """p-value of no difference (Student's t; of logarithms for costs), not corrected for the number of pairs."""
    least: float = np.nan
    """Of a cost: least mean (or median) that these runs can have, since costs lie between two evaluations."""
    most: float = np.nan
    """Greatest such mean."""
    statistic: str = MEAN
    """``geometric mean`` for costs to a target, unless one is 0, with the interval of logarithms; else ``mean``."""

    @classmethod
    def of(cls, row: Mapping[Any, Any] | pd.Series) -> Self:
        """Read the estimate in a row of :func:`~vflsim.results.statistics.summarise`."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})

    def within(self, least: float, greatest: float) -> Self:
        """Return the estimate with an interval that ends where the measure does.

        The mean of values in a range lies in that range, so the cut interval covers it as often as the whole one.
        """
        return replace(self, low=max(self.low, least), high=min(self.high, greatest))  # NaN stays: it is the first

    @property
    def censored(self) -> bool:
        """Whether some run is censored."""
        return self.reached < self.n

    @property
    def wide(self) -> bool:
        """Whether the mean, or without one the median, is known from evaluations that are too far apart."""
        return self.most - self.least > WIDE * abs(self.median if self.censored else self.mean)

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval; for a single run, or pair, what its evaluations tell."""
        return (self.least, self.most) if np.isnan(self.low) else (self.low, self.high)


def describe(estimate: Estimate, unit: str, share: bool = False) -> Amount:
    """Return an estimate as an amount: ``12.3 ± 0.4 s``; a difference with censored runs as its limit, ``> 20 s``.

    An interval that is not symmetric has its ends: ``5.3 (2.1 … 13) s``; after ± stands the longer of two nearly equal
    sides. A ``share`` has three digits: ``0.944 ± 0.007``, ``0.990 (0.961 … 1.000)``. A cost that evaluations too far
    apart tell has its bounds alone: ``0 … 5 s``. A censored cost has the number of runs that reached the target, their
    median (with its interval, from six runs on), and the bound of the others: ``4 of 5: 10.5 s, > 600 s``; or the bound
    alone.
    """
    if not estimate.censored:
        if share:
            return shared(estimate.mean, estimate.low, estimate.high)
        if estimate.wide:
            return span(*estimate.bounds, unit)
        if estimate.least == estimate.most and estimate.low == estimate.high:  # a cost that is the same in all runs
            return quantity(estimate.mean, unit)
        below, above = estimate.mean - estimate.low, estimate.high - estimate.mean
        if max(below, above) > SYMMETRIC * min(below, above):
            return spanned(estimate.mean, estimate.low, estimate.high, unit)
        return quantity(estimate.mean, unit, max(below, above))
    if math.isnan(estimate.horizon):
        end = estimate.at_most if math.isnan(estimate.at_least) else estimate.at_least
        return limit("most" if math.isnan(estimate.at_least) else "least", end, unit)
    bound = limit("least", estimate.horizon, unit)
    if math.isnan(estimate.median):
        return bound
    if not math.isnan(estimate.median_low):
        median = spanned(estimate.median, estimate.median_low, estimate.median_high, unit)
    else:
        median = span(estimate.least, estimate.most, unit) if estimate.wide else quantity(estimate.median, unit)
    return with_words(median, f", {bound}", f"{estimate.reached} of {estimate.n}: ")


def estimate(sample: SeedSample, statistic: str = MEAN) -> Estimate:
    """Estimate a mean; a geometric one needs positive values."""
    n, known = len(sample.values), ~sample.censored
    reached = int(known.sum())
    low = _lower_mean(sample.lower, statistic)
    if reached == n:
        interval = (log_interval if statistic == GEOMETRIC else t_interval)(sample.values)
        ends = (np.nan, np.nan) if sample.before is None else (low.mean, interval.mean)
        return Estimate(n, n, interval.mean, low.low, interval.high, least=ends[0], most=ends[1], statistic=statistic)
    values = np.sort(sample.values[known])
    places = order_statistics(len(values), 0.5)
    below = np.sort(sample.lower[known])
    median = float(np.median(values)) if reached else np.nan
    ends = (np.nan, np.nan) if sample.before is None or not reached else (float(np.median(below)), median)
    return Estimate(
        n,
        reached,
        at_least=max(0.0, _limit(_lower_mean(sample.lower, statistic, ONE_SIDED), "low")),  # no cost is below 0
        horizon=float(sample.values[sample.censored].min()),
        median=median,
        median_low=float(below[places[0]]) if places else np.nan,
        median_high=float(values[places[1]]) if places else np.nan,
        least=ends[0],
        most=ends[1],
        statistic=statistic,
    )


def _lower_mean(lower: Floats, statistic: str, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of lower ends and its interval; the geometric one is 0 if an end is."""
    if statistic != GEOMETRIC:
        return t_interval(lower, confidence)
    if (lower > 0).all():
        return log_interval(lower, confidence)
    return Interval(0.0, *((np.nan, np.nan) if len(lower) < 2 else (0.0, 0.0)), len(lower))


def paired(sample: SeedSample, other: SeedSample, statistic: str = MEAN) -> Estimate:
    """Estimate the mean of ``sample - other`` with equal seeds; a one-sided limit if only one side is censored.

    ``p`` tests whether the ``statistic`` of both is the same.
    """
    difference = _difference(sample, other, statistic, lambda one, two, confidence: t_interval(one - two, confidence))
    n = len(sample.values)
    if difference.censored or not difference.n:
        return replace(difference, n=n, reached=int((~(sample.censored | other.censored)).sum()))
    return replace(difference, n=n, reached=n, narrower=narrower(sample.values, other.values))


def independent(sample: SeedSample, other: SeedSample, statistic: str = MEAN) -> Estimate:
    """Estimate the mean of ``sample`` − the mean of ``other`` from independent runs; limits as in :func:`paired`.

    ``n`` and ``reached`` count the runs of both.
    """
    return _difference(sample, other, statistic, welch_interval)


def _difference(
    sample: SeedSample, other: SeedSample, statistic: str, interval: Callable[[Floats, Floats, float], Interval]
) -> Estimate:
    """Estimate a difference from the ``interval`` of its least and of its greatest values."""
    late, waiting = bool(sample.censored.any()), bool(other.censored.any())
    n = len(sample.values) + len(other.values)
    reached = n - int(sample.censored.sum()) - int(other.censored.sum())
    if not len(sample.values) or not len(other.values):
        return Estimate(0, 0)
    confidence = ONE_SIDED if late or waiting else CONFIDENCE
    low, high = interval(sample.lower, other.values, confidence), interval(sample.values, other.lower, confidence)
    if late or waiting:
        at_least = np.nan if waiting else _limit(low, "low")
        return Estimate(n, reached, at_least=at_least, at_most=np.nan if late else _limit(high, "high"))
    mean = interval(sample.values, other.values, confidence).mean
    ends = (np.nan, np.nan) if sample.before is None and other.before is None else (low.mean, high.mean)
    positive = all((each > 0).all() for each in (sample.values, sample.lower, other.values, other.lower))
    difference = Estimate(n, n, mean, low.low, high.high, least=ends[0], most=ends[1])
    if statistic == GEOMETRIC and positive:
        low = interval(np.log(sample.lower), np.log(other.values), confidence)
        high = interval(np.log(sample.values), np.log(other.lower), confidence)
    return replace(difference, p=_chance(low, high))


def _chance(low: Interval, high: Interval) -> float:
    """Return the p-value of no difference: that of the end that is nearer to 0, or 1 if 0 lies between them."""
    if low.mean < 0 < high.mean:
        return np.nan if np.isnan(low.p) else 1.0
    return low.p if low.mean >= 0 else high.p


def _limit(interval: Interval, side: Literal["low", "high"]) -> float:
    """Return a limit of a mean; of a single value, the value itself."""
    return interval.mean if interval.n < 2 else getattr(interval, side)


ROUNDS = "1 rounds"
"""The finest grid: after every step of the server."""


def resolution_note(results: RunSet, summary: pd.DataFrame, target: Target, measured: pd.DataFrame) -> Iterator[str]:
    """Name the protocols whose costs to a target evaluations tell too roughly, and propose a finer grid for each.

    ``summary`` and ``measured`` are the summary and the outcomes of the results.
    """
    rows = summary[(summary["target"] == str(target)) & summary["baseline"].isna()]
    wide = dict.fromkeys(row["protocol"] for row in rows.to_dict("records") if Estimate.of(row).wide)
    finer: dict[str, list[str]] = {}
    for name in wide:
        costs = measured[(measured["protocol"] == name) & (measured["target"] == str(target)) & ~measured["censored"]]
        finer.setdefault(finer_grid(results, name, costs), []).append(name)
    if finer:
        grids = "; ".join(f"`evaluate: {{every: {grid}}}` for {', '.join(names)}" for grid, names in finer.items())
        yield (
            f"Evaluated too seldom to tell costs to {target.bound}. They lie between the last evaluation that missed "
            f"the target and the first that met it, more than {100 * WIDE:g} % of the cost apart; “a … b” covers both. "
            f"Finer: {grids}."
        )


def finer_grid(results: RunSet, protocol: str, costs: pd.DataFrame) -> str:
    """Return how often to evaluate a protocol so that its ``costs``, rows of ``outcomes``, are told well enough.

    That is a tenth of what its quickest run had spent before, in the unit of the scenario's grid, but every round where
    rounds are longer.
    """
    run = next(run for run in results.runs if run.protocol == protocol)
    evaluate = results.evaluation(run)
    time, rounds = (costs[costs["measure"] == f"{cost}_to_target"].set_index("seed") for cost in ("time", "rounds"))
    if evaluate is not None and evaluate.every.unit == "seconds":
        wanted = WIDE * float(time["lower"].min())
        longest = float((time["value"] / rounds["value"]).max())  # a round, on average
        return ROUNDS if not wanted > longest else f"{_floor(wanted):g} s"
    return f"{max(1, math.floor(WIDE * float(rounds['lower'].min())))} rounds"


def _floor(value: float) -> float:
    """Round down to one significant digit."""
    step = 10.0 ** math.floor(math.log10(value))
    return math.floor(value / step) * step


def binomial_error(accuracy: float, rows: int) -> float:
    """Return the standard error √(a (1 − a) / n) of an accuracy on ``rows`` random rows; NaN for NaN."""
    return math.sqrt(accuracy * (1 - accuracy) / rows)


def sampling_note(results: RunSet, metric: str, means: Iterable[float]) -> Iterator[str]:
    """Yield the note that ± leaves out the sampling error of ``metric``'s rows; for an accuracy with its size.

    ``metric`` begins with its split, as in ``test_accuracy``; ``means`` are the protocols' means. Metrics of training
    rows have no note. The note has no size if runs do not report the number of rows.
    """
    split, _, bare = column_of(metric).partition("_")
    if split not in ("test", "validation"):
        return
    counts = {run.info.rows[split] for run in results.runs if split in run.info.rows}
    rows = counts.pop() if len(counts) == 1 else None
    which = f"the {rows:,} {split} rows" if rows else f"the {split} rows"
    note = f"± leaves out the sampling error of {which}: all seeds share one split"
    known = [mean for mean in means if 0 <= mean <= 1]
    if rows and known and bare == "accuracy":
        errors = [binomial_error(mean, rows) for mean in known]
        span = " to ".join(dict.fromkeys(f"{error:.2g}" for error in (min(errors), max(errors))))
        note += f" (of the accuracies shown, a binomial standard error of {span})"
    yield f"{note}."


def means_by(frame: pd.DataFrame, keys: Sequence[str], column: str) -> pd.DataFrame:
    """Average a column for each value of some keys, in their order: the keys, n, mean, and a t interval: low, high."""
    intervals = [(key, t_interval(group[column].to_numpy())) for key, group in frame.groupby([*keys], sort=False)]
    rows = [(*key, each.n, each.mean, each.low, each.high) for key, each in intervals]
    return pd.DataFrame(rows, columns=[*keys, "n", "mean", "low", "high"])
