"""Mean round duration from a single run, and the gain from pairing two runs round by round.

Durations within a run are dependent, and the first rounds differ from later ones.
:mod:`vflsim.intervals.steady` removes the warm-up and computes an interval all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vflsim.intervals.means import CONFIDENCE, narrower, t_interval
from vflsim.intervals.steady import BATCHES, SteadyMean, batch_means, constant, steady_mean, warm_up
from vflsim.intervals.variation import lacking
from vflsim.results.statistics.open_rounds import Rounds, with_open
from vflsim.timing.floats import Floats

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet
    from vflsim.results.store.run import StoredRun


@dataclass(frozen=True)
class RoundPair:
    """Comparison of two runs with the same seed round by round, after the longer of their warm-ups.

    ``correlation`` is the correlation of corresponding rounds' durations; ``mean`` is the mean difference, and
    ``low``–``high`` its interval by batch means of the differences. ``narrower`` is the factor of
    :func:`~vflsim.intervals.means.narrower` between batches. All are NaN for fewer than 40 such rounds.
    ``correlated``, ``settled`` and ``enough`` are as in :class:`~vflsim.intervals.steady.SteadyMean`.
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


def steady_rounds(results: RunSet, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Estimate the mean round duration in the steady state; one row per finished run that kept its rounds.

    Columns: protocol, seed, and the fields of :class:`~vflsim.intervals.steady.SteadyMean` (seconds and
    rounds).
    """
    rows = [
        {"protocol": run.protocol, "seed": run.seed, **asdict(within(run, confidence))} for run in _with_rounds(results)
    ]
    return pd.DataFrame(rows, columns=["protocol", "seed", *SteadyMean.__dataclass_fields__])


def within(run: StoredRun, confidence: float = CONFIDENCE) -> SteadyMean:
    """Estimate the mean round duration of one run in its steady state, with an interval from within the run."""
    return steady_mean(with_open(Rounds.of(run)), confidence, run.info.variation)


def round_pairs(results: RunSet, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Pair the runs of all protocols whose rounds correspond, seed by seed.

    Columns: protocol, baseline, seed, and the fields of :class:`RoundPair` for protocol − baseline, in seconds.
    """
    runs = list(_with_rounds(results))
    rows = [
        {"protocol": run.protocol, "baseline": other.protocol, "seed": run.seed, **asdict(found)}
        for other, run in combinations(runs, 2)
        if run.seed == other.seed
        and not results.unpaired(run.protocol, other.protocol)
        and (found := round_pair(run, other, confidence)) is not None
    ]
    return pd.DataFrame(rows, columns=["protocol", "baseline", "seed", *RoundPair.__dataclass_fields__])


def round_pair(run: StoredRun, other: StoredRun, confidence: float = CONFIDENCE) -> RoundPair | None:
    """Compute ``run`` − ``other`` round by round; None if the rounds of the two protocols do not correspond."""
    if not (run.info.rounds_correspond and other.info.rounds_correspond):
        return None
    pair = paired_rounds(run.round_durations(), other.round_durations(), confidence)
    known = [(each.info.variation, each.round_durations()[pair.warm_up :]) for each in (run, other)]
    return replace(pair, enough=not any(lacking(what, len(rounds), float(rounds.sum())) for what, rounds in known))


def paired_rounds(values: Floats, others: Floats, confidence: float = CONFIDENCE) -> RoundPair:
    """Compute ``values − others`` for two sequences of durations, over their common rounds."""
    common = min(len(values), len(others))
    (first, settled), (second, both_settled) = (warm_up(each[:common]) for each in (values, others))
    removed, settled = max(first, second), settled and both_settled
    one, two = values[removed:common], others[removed:common]
    if len(one) < BATCHES:
        nothing = np.nan
        return RoundPair(len(one), removed, nothing, nothing, nothing, nothing, nothing, False, settled)
    means, _, correlated = batch_means(one - two)
    found = t_interval(means, confidence)
    rounds = len(one) // BATCHES * BATCHES
    worth = narrower(_in_batches(one, len(means)), _in_batches(two, len(means)), confidence)
    return RoundPair(
        rounds, common - rounds, _correlation(one, two), found.mean, found.low, found.high, worth, correlated, settled
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
