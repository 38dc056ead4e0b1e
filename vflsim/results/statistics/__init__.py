"""Summaries over seeds: means, costs to a target, and paired differences between protocols.

For each seed, all protocols share their random draws, so differences are paired: taken within each common seed, then
averaged. A target is met between two evaluations, so the cost of a run is an interval. A run that never reaches its
target is *censored*: reaching it would have taken longer than the run lasted. Diverged runs are censored too, and count
for nothing else. Censored costs have no mean, but one-sided limits.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsim.books import BYTES
from vflsim.intervals import BATCHES, chance
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.costs import SPENT, metrics_by_run, passage, wanted_targets
from vflsim.results.statistics.doubts import best_of, distinct, plateau_of
from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, Estimate, SeedSample, estimate, independent, paired
from vflsim.results.statistics.rounds import Rounds, ages_of, means, round_pair, within
from vflsim.results.store.run import StoredRun
from vflsim.scenario.sections import Evaluate
from vflsim.timing.floats import Floats
from vflsim.vocabulary.budgets import UNITS
from vflsim.vocabulary.metrics import higher_is_better, range_of, unit_of
from vflsim.vocabulary.targets import Target
from vflsim.world.run_tables import ENERGY

STEADY = "steady_round_duration"

_COSTS = {f"{cost}_to_target": (column, UNITS[cost]) for cost, column in SPENT.items()}
KEYS = {
    "measure": "What is estimated: ``end_<metric>``, ``plateau_<metric>``, ``best_<metric>``, "
    "``time_of_best_<metric>``, ``<cost>_to_target``, ``round_duration`` and so on.",
    "target": "The target of a cost, in words.",
    "unit": "Unit of the values.",
    "protocol": "The protocol.",
    "baseline": "Of a difference ``protocol - baseline`` over common seeds: the other protocol.",
    "failed": "Number of failed runs, which are left out.",
    "diverged": "Number of diverged runs, which count for costs to a target alone.",
}
"""What the columns of a summary before those of an estimate mean."""
_TOTALS = {"end": ("time_s", "s"), "rounds": ("round", "rounds"), "updates": ("updates", "updates")}
_TOTALS |= {name: (name, "B") for name in (*BYTES, "bytes")}
_TOTALS |= {"energy": (ENERGY, "J")}


def outcomes(results: RunSet, targets: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Measure each run; columns: protocol, seed, measure, target, unit, value, lower, censored.

    A cost to a target lies above ``lower`` (the last evaluation that did not meet it), up to ``value`` (the first that
    did). Of a censored cost (target not reached) both are a lower bound; of other measures both are the value. Diverged
    runs have costs to targets alone, runs that failed otherwise have no rows. ``targets`` replaces the scenario's, in
    the same form: ``{"test_accuracy": 0.9, "for": "20 s"}``. Raises ResultsError for a target whose metric was not
    evaluated.
    """
    if targets is not None:
        return _outcomes(results, targets)
    return results.once("outcomes", lambda: _outcomes(results, None))


def _outcomes(results: RunSet, targets: Mapping[str, Any] | None) -> pd.DataFrame:
    wanted = wanted_targets(results, targets)
    rows: list[dict[str, Any]] = []
    by_run = metrics_by_run(results)
    lasted = _mean_rounds(results)
    for run in results.runs:
        frame = by_run.get((run.protocol, run.seed))
        if frame is None or (run.failed and not run.diverged):
            continue
        measured = list(_costs(frame, wanted, run.diverged, results.evaluation(run)))
        if not run.failed:
            measured += _measures(frame, results, run.info.stop_reason)
            measures = run.info.measures.items()
            measured += [_exact(name, each.unit, each.value) for name, each in measures if each.value is not None]
        for measure, value in lasted.get((run.protocol, run.seed), {}).items():
            measured.append(_exact(measure, "s", value))
        names = ("measure", "target", "unit", "value", "lower", "censored")
        rows += [{"protocol": run.protocol, "seed": run.seed} | dict(zip(names, m, strict=True)) for m in measured]
    return pd.DataFrame(rows, columns=["protocol", "seed", "measure", "target", "unit", "value", "lower", "censored"])


def _mean_rounds(results: RunSet) -> dict[tuple[str, int], dict[str, float]]:
    """Compute the values of runs for the mean round duration, of all rounds and without their warm-up (s)."""
    by_run: dict[tuple[str, int], dict[str, float]] = {}
    for name in results.protocols:
        runs = [run for run in results.runs if run.protocol == name and not run.failed and run.has("rounds")]
        rounds = [Rounds.of(run) for run in runs]
        alone = len(runs) == 1 or not len(ages_of(rounds))
        steady = [within(run).mean for run in runs] if alone else means([each.settled() for each in rounds])
        for run, value, settled in zip(runs, means(rounds), steady, strict=True):
            if value == value:
                by_run[name, run.seed] = {"round_duration": float(value), STEADY: float(settled)}
    return by_run


def summarise(results: RunSet, targets: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Estimate each measure over seeds: one row for every protocol, then one for the difference of every pair.

    Columns: :data:`KEYS`, and the fields of :class:`Estimate`. Measures:
    ``end_<metric>``, ``plateau_<metric>``, ``best_<metric>``, ``time_of_best_<metric>``, ``time_to_target``,
    ``rounds_to_target``, ``bytes_to_target``, ``energy_to_target``, ``end``, ``rounds``, ``updates``, ``bytes…``,
    ``energy``, ``round_duration``, ``steady_round_duration`` (without each run's warm-up), and those of the scenario's
    key ``measures``.
    For a single run, the interval of the last comes from within the run, if it is sound; likewise the difference of two
    protocols whose rounds correspond. Intervals of metrics end where the metric does: shares at 0 and 1. Nothing is
    subtracted from ``results.baseline``: its differences have one sign. Protocols that are not paired have the
    difference of their means, with Welch's interval.
    """
    if targets is not None:
        return estimated(results, outcomes(results, targets))
    return results.once("summary", lambda: estimated(results, outcomes(results)))


def estimated(results: RunSet, measured: pd.DataFrame) -> pd.DataFrame:
    """Estimate what was ``measured`` of each run, rows as of :func:`outcomes`; the columns of :func:`summarise`."""
    order = sorted(results.protocols, key=lambda name: name != results.baseline)
    lost = {
        name: {
            "failed": {run.seed for run in results.failed if run.protocol == name and not run.diverged},
            "diverged": {run.seed for run in results.failed if run.protocol == name and run.diverged},
        }
        for name in results.protocols
    }
    rows: list[dict[str, Any]] = []
    for (measure, target, unit), samples in _by_protocol(measured).items():
        key = {"measure": measure, "target": target, "unit": unit}
        runs = {name: samples[name] for name in results.protocols if name in samples}
        statistic = statistic_of(measure, [sample.values for sample in runs.values()])
        for name, sample in runs.items():
            result = estimate(sample, statistic)
            if measure == STEADY and len(sample.seeds) == 1:
                result = _within(results.run(name, sample.seeds[0]))
            result = result.within(*range_of_measure(measure, results))
            rows.append({**key, "protocol": name, "baseline": None, **_counts(lost[name]), **vars(result)})
        for baseline, name in combinations([name for name in order if name in runs], 2):
            alone = bool(results.unpaired(name, baseline))
            sample, other = runs[name], runs[baseline]
            if not alone and sample.seeds != other.seeds:
                sample, other = sample.only(other.seeds), other.only(sample.seeds)
            result = (independent if alone else paired)(sample, other, statistic)
            if not alone and measure == STEADY and len(sample.seeds) == 1:
                result = _pair_within(results, name, baseline, sample.seeds[0]) or result
            either = {what: lost[name][what] | lost[baseline][what] for what in lost[name]}
            rows.append({**key, "protocol": name, "baseline": baseline, **_counts(either), **vars(result)})
    return pd.DataFrame(rows, columns=[*KEYS, *Estimate.__dataclass_fields__])


def _by_protocol(measured: pd.DataFrame) -> dict[tuple[str, str | None, str], dict[str, SeedSample]]:
    """Sort the outcomes of runs by measure, target and unit, then by protocol; each in the order of its first row."""
    parts: dict[tuple[str, str | None, str], dict[str, list[tuple[Any, ...]]]] = {}
    keys, run = ("measure", "target", "unit", "protocol"), ("seed", "value", "censored", "lower")
    columns = (measured[name].tolist() for name in (*keys, *run))
    for measure, target, unit, protocol, *each in zip(*columns, strict=True):
        key = measure, None if pd.isna(target) else target, unit
        parts.setdefault(key, {}).setdefault(protocol, []).append((*each,))
    return {
        key: {name: _sample(rows, key[1] is not None) for name, rows in part.items()} for key, part in parts.items()
    }


def _sample(runs: list[tuple[Any, ...]], cost: bool) -> SeedSample:
    seeds, values, censored, lower = zip(*runs, strict=True)
    before = np.array(lower, np.float64) if cost else None
    return SeedSample(seeds, np.array(values, np.float64), np.array(censored, np.bool_), before)


def range_of_measure(measure: str, results: RunSet) -> tuple[float, float]:
    """Return the least and the greatest value of a measure; infinite for what is no evaluated metric."""
    kind, _, metric = measure.partition("_")
    known = kind in ("end", "plateau", "best", "within") and metric in (*results.evaluated, "train_loss")
    return range_of(metric, results.own_metrics) if known else (-np.inf, np.inf)


def statistic_of(measure: str, values: Iterable[Floats]) -> str:
    """Return which mean a measure has, for all protocols alike: costs to a target the geometric mean, unless one is 0.

    A protocol that costs nothing in any run does not count: its mean is 0 in either sense. Speed-ups are ratios of
    these means. They weigh a seed by its factor: one slow seed decides little, and the interval covers under heavy
    tails, too. Every other measure has the arithmetic mean.
    """
    return GEOMETRIC if measure in _COSTS and all((costs > 0).all() or not costs.any() for costs in values) else MEAN


def _counts(lost: Mapping[str, set[int]]) -> dict[str, int]:
    return {what: len(seeds) for what, seeds in lost.items()}


def _within(run: StoredRun) -> Estimate:
    """Estimate the mean round duration from a single run, with an interval only if it is sound."""
    alone = within(run)
    return Estimate(1, 1, alone.mean, *((alone.low, alone.high) if alone.sound else ()))


def _pair_within(results: RunSet, name: str, baseline: str, seed: int) -> Estimate | None:
    """Estimate the difference from single runs; None unless their rounds correspond and the interval is sound."""
    pair = round_pair(results.run(name, seed), results.run(baseline, seed))
    if pair is None or not pair.sound:
        return None
    p = chance(pair.mean, pair.high - pair.mean, BATCHES // 2 - 1)  # of the fewest batches
    return Estimate(1, 1, pair.mean, pair.low, pair.high, narrower=pair.narrower, p=p)


def to_table(summary: pd.DataFrame) -> pa.Table:
    """Convert a summary to an Arrow table with fixed types, for ``summary.parquet``."""
    kinds = {"failed": pa.int64(), "diverged": pa.int64(), "n": pa.int64(), "reached": pa.int64()}
    kinds |= dict.fromkeys(("measure", "target", "unit", "protocol", "baseline", "statistic"), pa.string())
    schema = pa.schema([pa.field(name, kinds.get(name, pa.float64())) for name in summary.columns])
    # from_pandas turns NaN into null: "not computed", "no target", "no baseline".
    return pa.table([pa.array(summary[field.name], field.type, from_pandas=True) for field in schema], schema=schema)


_Measured = tuple[str, str | None, str, float, float, bool]
"""Measure, target, unit, value, its lower end, censored."""


def _exact(measure: str, unit: str, value: float) -> _Measured:
    return measure, None, unit, value, value, False


def _costs(
    frame: pd.DataFrame, targets: Iterable[Target], diverged: bool, evaluate: Evaluate | None
) -> Iterator[_Measured]:
    """Measure the costs of one run until each target."""
    for target in targets:
        crossing = passage(frame, target, diverged, evaluate)
        for measure, (column, unit) in _counted(_COSTS, frame).items():
            lower = float(crossing.before[column])
            yield (
                measure,
                str(target),
                unit,
                float(crossing.row[column]) if crossing.reached else lower,
                lower,
                not crossing.reached,
            )


def _measures(frame: pd.DataFrame, results: RunSet, stop_reason: str | None) -> Iterator[_Measured]:
    """Measure what does not depend on targets."""
    steps = distinct(frame)
    for metric in (*results.evaluated, "train_loss"):
        values, unit = frame[metric].to_numpy(np.float64), unit_of(metric, results.own_metrics)
        if len(values := values[~np.isnan(values)]):
            yield _exact(f"end_{metric}", unit, float(values[-1]))
            if stop_reason != "target":
                yield _exact(f"plateau_{metric}", unit, plateau_of(steps, metric))
            if metric in results.evaluated:
                best, time_s = best_of(frame, metric, higher_is_better(metric, results.own_metrics))
                yield _exact(f"best_{metric}", unit, best)
                yield _exact(f"time_of_best_{metric}", "s", time_s)
    for measure, (column, unit) in _counted(_TOTALS, frame).items():
        yield _exact(measure, unit, float(frame[column].to_numpy()[-1]))


def _counted(measures: Mapping[str, tuple[str, str]], frame: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Leave out the energy of a run that has not counted it, alone or beside others that have."""
    energy = ENERGY in frame and frame[ENERGY].notna().all()
    return {name: (column, unit) for name, (column, unit) in measures.items() if column != ENERGY or energy}
