"""Mean round durations: the round in progress when a run stops by time, steady state, and pairs round by round.

Its duration is censored at its age. It counts as long as rounds that were still in progress at that age last on average
(Kaplan and Meier, by redistribution to the right: Efron 1967), over all runs of a protocol. The mean over runs is the
ratio of totals, all rounds' time ÷ all rounds begun: the round in progress is the first to pass a given time, so its
number is a stopping time, and Wald's equation holds for it.

Durations within a run are dependent, and the first rounds differ from later ones.
:mod:`vflsim.intervals` removes the warm-up and computes an interval all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from vflsim.intervals import (
    BATCHES,
    SKEWED,
    SteadyMean,
    Variation,
    batch_means,
    constant,
    lacking,
    narrower,
    ranks,
    steady_mean,
    t_interval,
    warm_up,
)
from vflsim.results.run_set import RunSet
from vflsim.results.store.run import StoredRun
from vflsim.timing.floats import Floats

INDEPENDENT = 10
"""Where rounds depend on each other, a run needs as many as count like 10 independent ones."""
SIGNIFICANT = 0.01
"""How often independent rounds are taken for dependent ones."""
OPEN = (
    "Mean round: a round in progress when a run stopped by time counts as long as rounds that outlasted what it had "
    "lasted by then."
)
"""Note below tables whose mean rounds count such rounds."""


@dataclass(frozen=True)
class Rounds:
    """Durations (s) of one run's complete rounds, and the age (s) of the one in progress at its end (none: NaN)."""

    complete: Floats
    age: float

    @classmethod
    def of(cls, run: StoredRun) -> Rounds:
        """Read those of a run."""
        age = run.open_round()
        return cls(run.round_durations(), np.nan if age is None else age)

    @property
    def begun(self) -> int:
        """The number of rounds begun."""
        return len(self.complete) + bool(self.age == self.age)

    def settled(self) -> Rounds:
        """Return them without the warm-up."""
        return Rounds(self.complete[warm_up(self.complete)[0] :], self.age)


def ages_of(runs: Sequence[Rounds]) -> Floats:
    """Return the ages of the open rounds of several runs."""
    ages = np.array([run.age for run in runs])
    return np.asarray(ages[~np.isnan(ages)])


def lasting(complete: Floats, ages: Floats) -> Floats:
    """Estimate how long rounds in progress will last (s) from their ``ages`` and the durations of complete ones.

    Each lasts the mean of those known to outlast its age; its age, a lower bound, where there are none.
    """
    ordered = np.sort(complete)
    sums = np.append(np.cumsum(ordered[::-1])[::-1], 0.0)
    durations, total, count = np.empty(len(ages)), 0.0, 0
    for place in np.argsort(-ages, kind="stable"):
        first = int(np.searchsorted(ordered, ages[place], side="right"))
        longer = len(ordered) - first + count
        durations[place] = (sums[first] + total) / longer if longer else ages[place]
        total, count = total + durations[place], count + 1
    return durations


def means(runs: Sequence[Rounds]) -> Floats:
    """Give each run a value (s), so that their mean and Student-t interval are those of the mean round duration.

    Without open rounds it is the mean of the run's rounds (NaN for none). Otherwise the mean m is the ratio of all
    rounds' time to all rounds begun, and a run's value is m plus its part of the error: (its time − m · its rounds) ÷
    the mean number of rounds of a run (Cochran, Sampling Techniques, §6.3).
    """
    ages = ages_of(runs)
    complete = np.concatenate([np.empty(0), *(run.complete for run in runs)])
    if not len(ages) or not len(complete):
        return np.array([float(run.complete.mean()) if len(run.complete) else np.nan for run in runs])
    rest = iter(lasting(complete, ages))
    time = np.array([float(run.complete.sum()) + (next(rest) if run.age == run.age else 0.0) for run in runs])
    begun = np.array([float(run.begun) for run in runs])
    mean = time.sum() / begun.sum()
    return np.asarray(mean + (time - mean * begun) / begun.mean())


def pooled_mean(complete: Floats, ages: Floats) -> float:
    """Estimate the mean of all rounds (s), those in progress at the end included."""
    if not len(ages):
        return float(complete.mean())
    return float((complete.sum() + lasting(complete, ages).sum()) / (len(complete) + len(ages)))


def with_open(run: Rounds) -> Floats:
    """Return the durations of one run's rounds in order, the one in progress as long as it may be expected to last."""
    if np.isnan(run.age) or not len(run.complete):
        return run.complete
    return np.append(run.complete, lasting(run.complete, np.array([run.age])))


def outlasting(complete: Floats, ages: Floats) -> Floats:
    """Estimate the share of rounds that outlast each of the ascending ``complete`` ones (n,); 1 in front: (n + 1,).

    The estimator of Kaplan and Meier, with rounds in progress censored at their ``ages``.
    """
    if not len(ages):
        return 1 - np.arange(len(complete) + 1) / max(len(complete), 1)
    later = len(ages) - np.searchsorted(np.sort(ages), complete, side="left")
    at_risk = len(complete) - np.arange(len(complete)) + later
    return np.concatenate([[1.0], np.cumprod(1 - 1 / at_risk)])


def doubts(runs: Sequence[Rounds], variation: Variation | None = None) -> str:
    """Say why the mean of runs may be too small, if they stopped by time, or its interval too narrow; empty if neither.

    ``variation`` is what the scenario says of the rounds: how many a mean needs, whatever those seen look like.
    """
    ages, complete = ages_of(runs), np.concatenate([np.empty(0), *(run.complete for run in runs)])
    if not len(complete):
        return ""
    if not len(ages):
        return _dependent(runs)
    if ages.max() > complete.max():
        return f"a round in progress at the end, {ages.max():.3g} s so far, had outlasted all complete ones"
    if known := lacking(variation, len(complete), math.inf):
        return known
    later = np.concatenate(
        [run.complete[1:] for run in runs]
    )  # a first round lacks a gradient: it differs by no chance
    centred = later - later.mean() if len(later) else later
    spread = float(np.sqrt((centred**2).mean())) if len(later) else 0.0
    skewness = float(((centred / spread) ** 3).mean()) if spread > 0 else 0.0
    needed = SKEWED * max(skewness, 0.0) ** 2  # rare short rounds make no mean too small
    if len(complete) < needed:
        return f"{len(complete):,} rounds are few for so skewed durations; {needed:,.0f} or more would do"
    return _dependent(runs)


def _dependent(runs: Sequence[Rounds]) -> str:
    inflated = dependence([run.complete for run in runs])
    if inflated > 1 and (each := sum(len(run.complete) for run in runs) / len(runs)) < INDEPENDENT * inflated:
        return f"a run's rounds depend on each other, and {each:,.0f} count like {each / inflated:.2g} independent ones"
    return ""


def dependence(runs: Sequence[Floats]) -> float:
    """Estimate by how much dependence within runs inflates the variance of their means: 1 if it is not significant.

    The ratio of the mean squares between and within runs, of ranks, if independent rounds reach it in 1 % of cases.
    """
    several = [run for run in runs if len(run) > 1]
    if len(several) < 2 or np.ptp(np.concatenate(several)) == 0:
        return 1.0
    sizes = np.array([len(run) for run in several])
    each = np.split(ranks(np.concatenate(several)), np.cumsum(sizes)[:-1])
    means, free = np.array([run.mean() for run in each]), (len(sizes) - 1, int(sizes.sum()) - len(sizes))
    between = float((sizes * (means - np.average(means, weights=sizes)) ** 2).sum()) / free[0]
    within = sum(float(((run - mean) ** 2).sum()) for run, mean in zip(each, means, strict=True)) / free[1]
    ratio = between / within if within > 0 else math.inf
    return min(ratio, float(sizes.mean())) if fdtrc(*free, ratio) < SIGNIFICANT else 1.0


def variation_of(results: RunSet, protocol: str) -> Variation | None:
    """Return what the scenario says of a protocol's rounds; None if nothing, or without a finished run."""
    return next((run.info.variation for run in results.runs if run.protocol == protocol and not run.failed), None)


def open_notes(results: RunSet) -> Iterator[str]:
    """Yield the notes on how mean rounds count those in progress when runs stopped by time, and on doubtful means."""
    doubted, counted = list[str](), False
    for name in results.protocols:
        runs = [Rounds.of(run) for run in results.runs if run.protocol == name and not run.failed and run.has("rounds")]
        if doubt := doubts(runs, variation_of(results, name)):
            wrong = (
                "its mean round may be too small, and ± too narrow" if len(ages_of(runs)) else "its ± may be too narrow"
            )
            doubted.append(f"{name}: {wrong}: {doubt}.")
        counted |= len(ages_of(runs)) > 0
    if counted:
        yield OPEN
    yield from doubted


@dataclass(frozen=True)
class RoundPair:
    """Comparison of two runs with the same seed round by round, after the longer of their warm-ups.

    ``correlation`` is the correlation of corresponding rounds' durations; ``mean`` is the mean difference, and
    ``low``–``high`` its interval by batch means of the differences. ``narrower`` is the factor of
    :func:`~vflsim.intervals.narrower` between batches. All are NaN for fewer than 40 such rounds.
    ``correlated``, ``settled`` and ``enough`` are as in :class:`~vflsim.intervals.SteadyMean`.
    """

    rounds: int
    warm_up: int
    correlation: float
    mean: float
    low: float
    high: float
    narrower: float
    correlated: bool
    settled: bool
    enough: bool = True

    @property
    def sound(self) -> bool:
        """Whether there is an interval that is settled and uncorrelated, of enough rounds."""
        return self.settled and not self.correlated and self.enough and self.low == self.low


def steady_rounds(results: RunSet) -> pd.DataFrame:
    """Estimate the mean round duration in the steady state; one row per finished run that kept its rounds.

    Columns: protocol, seed, and the fields of :class:`~vflsim.intervals.SteadyMean` (seconds and
    rounds).
    """
    rows = [{"protocol": run.protocol, "seed": run.seed, **asdict(within(run))} for run in _with_rounds(results)]
    return pd.DataFrame(rows, columns=["protocol", "seed", *SteadyMean.__dataclass_fields__])


def within(run: StoredRun) -> SteadyMean:
    """Estimate the mean round duration of one run in its steady state, with an interval from within the run."""
    return steady_mean(with_open(Rounds.of(run)), variation=run.info.variation)


def round_pairs(results: RunSet) -> pd.DataFrame:
    """Pair the runs of all protocols whose rounds correspond, seed by seed.

    Columns: protocol, baseline, seed, and the fields of :class:`RoundPair` for protocol − baseline, in seconds.
    """
    runs = list(_with_rounds(results))
    rows = [
        {"protocol": run.protocol, "baseline": other.protocol, "seed": run.seed, **asdict(pair)}
        for other, run in combinations(runs, 2)
        if run.seed == other.seed
        and not results.unpaired(run.protocol, other.protocol)
        and (pair := round_pair(run, other)) is not None
    ]
    return pd.DataFrame(rows, columns=["protocol", "baseline", "seed", *RoundPair.__dataclass_fields__])


def round_pair(run: StoredRun, other: StoredRun) -> RoundPair | None:
    """Compute ``run`` − ``other`` round by round; None if the rounds of the two protocols do not correspond."""
    if not (run.info.rounds_correspond and other.info.rounds_correspond):
        return None
    pair = paired_rounds(run.round_durations(), other.round_durations())
    known = [(each.info.variation, each.round_durations()[pair.warm_up :]) for each in (run, other)]
    return replace(pair, enough=not any(lacking(what, len(rounds), float(rounds.sum())) for what, rounds in known))


def paired_rounds(values: Floats, others: Floats) -> RoundPair:
    """Compute ``values − others`` for two sequences of durations, over their common rounds."""
    common = min(len(values), len(others))
    (first, settled), (second, both_settled) = (warm_up(each[:common]) for each in (values, others))
    removed, settled = max(first, second), settled and both_settled
    one, two = values[removed:common], others[removed:common]
    if len(one) < BATCHES:
        nothing = np.nan
        return RoundPair(len(one), removed, nothing, nothing, nothing, nothing, nothing, False, settled)
    means, _, correlated = batch_means(one - two)
    gap = t_interval(means)
    rounds = len(one) // BATCHES * BATCHES
    worth = narrower(_in_batches(one, len(means)), _in_batches(two, len(means)))
    return RoundPair(
        rounds, common - rounds, _correlation(one, two), gap.mean, gap.low, gap.high, worth, correlated, settled
    )


def _correlation(values: Floats, others: Floats) -> float:
    """Return Pearson's correlation; NaN if one side is constant."""
    if constant(values) or constant(others):
        return np.nan
    covariance = ((values - values.mean()) * (others - others.mean())).mean()
    return float(covariance / (values.std() * others.std()))


def _in_batches(values: Floats, batches: int) -> Floats:
    means: Floats = values[len(values) % BATCHES :].reshape(batches, -1).mean(axis=1)
    return means


def _with_rounds(results: RunSet) -> Iterator[StoredRun]:
    return (run for run in results.runs if not run.failed and run.has("rounds"))
