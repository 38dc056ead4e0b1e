"""What makes a summary doubtful: intervals under heavy tails, targets within noise, runs that ended past their best.

How often 95 % intervals over seeds cover comes from ``python benchmarks/coverage.py over_seeds``: 2,000 studies of five
seeds each, a standard error of .01.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
import pandas as pd

from vflsim.results.facts import HeavyTail
from vflsim.results.run_set import RunSet
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.metrics import higher_is_better
from vflsim.vocabulary.targets import Target

PLATEAU = 0.1
"""Share of a run's evaluations, at its end, that the plateau averages (at least one)."""


def distinct(metrics: pd.DataFrame) -> pd.DataFrame:
    """Leave out a last row with the same models as the row before."""
    return metrics.drop_duplicates(["round", "updates"])


def plateau_of(metrics: pd.DataFrame, metric: str) -> float:
    """Average a metric over the last tenth of a run's ``distinct`` evaluations; NaN if there are none."""
    values = metrics[metric].dropna().to_numpy(dtype=np.float64)
    return float(values[-ceil(PLATEAU * len(values)) :].mean()) if len(values) else float("nan")


def best_of(metrics: pd.DataFrame, metric: str, higher: bool) -> tuple[float, float]:
    """Return the best value of a metric at any of a run's evaluations (one at least), and the time of the first one."""
    known = metrics[metrics[metric].notna()]
    values = known[metric].to_numpy(dtype=np.float64)
    place = int(values.argmax() if higher else values.argmin())
    return float(values[place]), float(known["time_s"].to_numpy()[place])


def highest_mean(metrics: pd.DataFrame, metric: str, higher: bool) -> float:
    """Return the best mean of a metric over as many evaluations in a row as the plateau averages."""
    values = metrics[metric].dropna().to_numpy(dtype=np.float64)
    means = np.lib.stride_tricks.sliding_window_view(values, ceil(PLATEAU * len(values))).mean(axis=1)
    return float(means.max() if higher else means.min())


LATE = 0.25
"""Share of a run's evaluations, at its end, whose scatter about a line is taken for the noise."""
FEWEST = 8
"""Evaluations that tell a scatter."""
NEAR = 2.0
"""Standard deviations of the noise within which a target is near a plateau."""


def level(metrics: pd.DataFrame, metric: str) -> tuple[float, float] | None:
    """Return where a metric ends and the standard deviation of its noise; None for fewer than ``FEWEST`` evaluations.

    Both are of the line through the last quarter of the run's ``distinct`` evaluations, so that what a model still
    learns is not taken for noise.
    """
    if metric not in metrics:  # a party's own, which other protocols lack
        return None
    values = metrics[metric].dropna().to_numpy(dtype=np.float64)
    late = values[-ceil(LATE * len(values)) :] if len(values) else values
    if len(late) < FEWEST or not np.isfinite(late).all():
        return None
    at = np.arange(len(late))
    slope, start = np.polyfit(at, late, 1)
    scatter = late - (start + slope * at)
    return float(start + slope * at[-1]), float(np.sqrt((scatter**2).sum() / (len(late) - 2)))


def _unstopped(results: RunSet) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """Yield every protocol with the ``distinct`` evaluations of its finished runs, but those that the target ended."""
    metrics = results.metrics
    protocols, seeds = metrics["protocol"].to_numpy(object), metrics["seed"].to_numpy()
    for name in results.protocols:
        runs = [run for run in results.runs if run.protocol == name and not run.failed]
        seeds_of = [run.seed for run in runs if run.info.stop_reason != "target"]
        yield name, [distinct(metrics[(protocols == name) & (seeds == seed)]) for seed in seeds_of]


def near_plateau_note(results: RunSet, target: Target) -> Iterator[str]:
    """Name the protocols at whose plateaus a target lies within the noise, if there are any.

    Runs that the target ended have no plateau, and do not count.
    """
    near: list[str] = []
    for name, steps in _unstopped(results):
        ends = [level(each, target.metric) for each in steps]
        levels = np.array([each for each in ends if each is not None])
        if len(levels) and (noise := float(levels[:, 1].mean())) > 0:
            end = float(levels[:, 0].mean())
            if abs(end - target.value) <= NEAR * noise:
                near.append(f"{name} ({end:.4g}, standard deviation {noise:.2g})")
    if near:
        yield (
            f"{target.bound} lies within the noise where these end: {', '.join(near)}. When they reach it, if they do, "
            "depends on chance and on how often is evaluated: choose another target, or hold it for longer."
        )


FEWEST_STEPS = 3
"""Steps between evaluations, in the later half of a run, that tell their noise."""


@dataclass(frozen=True)
class PastBest:
    """Means over a protocol's runs: the ``best`` value of the main metric, when it was, and the ``final`` one."""

    best: float
    time_s: float
    final: float


def past_best(results: RunSet) -> dict[str, PastBest]:
    """Return the protocols whose runs end clearly below their best in the main metric.

    The best mean over a tenth of a run's evaluations is compared with the final one, over the last tenth. Clear is a
    mean loss above the standard deviation of the final value over seeds, and above two standard deviations of the noise
    of single evaluations. Runs that a target ended do not count, nor do those of too few evaluations to tell noise.
    """
    metric, past = results.main_metric, dict[str, PastBest]()
    higher = higher_is_better(metric, results.own_metrics)
    for name, every in _unstopped(results):
        steps = [each for each in every if metric in each and each[metric].notna().any()]
        noise = [known for each in steps if (known := _noise(each, metric)) is not None]
        if not noise:
            continue
        final = np.array([plateau_of(each, metric) for each in steps])
        lost = np.abs(np.array([highest_mean(each, metric, higher) for each in steps]) - final)
        spread = float(final.std(ddof=1)) if len(final) > 1 else 0.0
        if lost.mean() > max(spread, NEAR * float(np.mean(noise))):
            best, times = np.transpose([best_of(each, metric, higher) for each in steps])
            past[name] = PastBest(float(best.mean()), float(times.mean()), float(final.mean()))
    return past


def _noise(steps: pd.DataFrame, metric: str) -> float | None:
    """Return the standard deviation of the noise of a run's evaluations; of few, from the differences of later ones."""
    if (known := level(steps, metric)) is not None:
        return known[1]
    values = steps[metric].dropna().to_numpy(dtype=np.float64)
    later = np.diff(values[len(values) // 2 :])
    return float(later.std(ddof=1) / np.sqrt(2)) if len(later) >= FEWEST_STEPS else None


def past_best_note(results: RunSet) -> Iterator[str]:
    """Say of which protocols the final level ranks when runs were stopped; nothing if there are none."""
    if not results.evaluated or not (protocols := past_best(results)):
        return
    metric = results.main_metric.replace("_", " ")
    named = ", ".join(
        f"{name} ({each.best:.3g} at {quantity(float(f'{each.time_s:.3g}'), 's')}, {each.final:.3g} at the end)"
        for name, each in protocols.items()
    )
    yield (
        f"Past their best in {metric}: {named}. So the final level ranks when runs were stopped, not the protocols. "
        "End them at their best (stop.rules, on validation rows), or compare the best values. These are optimistic, "
        "since each is chosen from many evaluations of the rows it is measured on."
    )


Estimated = Literal["mean", "difference", "cost"]
Cause = Literal["tail", "infinite", "bursts", "dependence"]
SEEDS = 5
"""Seeds of a measured study."""
ENOUGH = 0.93
"""Coverage from which on an interval of 95 % needs no warning."""

ROUNDING = 0.001
"""Rounding of the measured runs' ``share``."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of runs of so many ``rounds`` of a law, because of a heavy tail, an infinite variance, or bursts.

    ``draws`` are the rounds, or the cycles of bursts, and ``share`` is the part of the variance in the slowest of them
    (:func:`~vflsim.timing.tail_share.tail_share`). ``mean``, ``difference`` and ``cost`` are the shares of studies
    whose interval covers the mean, the paired difference, and the geometric mean of a cost.
    """

    law: str
    cause: Cause
    rounds: int
    draws: float
    share: float
    mean: float
    difference: float
    cost: float


MEASURED = (
    Coverage("exponential", "tail", 1, 1, 0.736, 0.89, 0.88, 0.93),
    Coverage("exponential", "tail", 30, 30, 0.419, 0.95, 0.96, 0.95),
    Coverage("exponential", "tail", 300, 300, 0.112, 0.95, 0.95, 0.95),
    Coverage("log-normal 1.5", "tail", 1, 1, 0.949, 0.70, 0.69, 0.96),
    Coverage("log-normal 1.5", "tail", 30, 30, 0.899, 0.91, 0.91, 0.95),
    Coverage("log-normal 1.5", "tail", 300, 300, 0.659, 0.94, 0.94, 0.95),
    Coverage("Pareto 2.2", "tail", 1, 1, 0.966, 0.75, 0.77, 0.88),
    Coverage("Pareto 2.2", "tail", 30, 30, 0.934, 0.90, 0.92, 0.93),
    Coverage("Pareto 2.2", "tail", 300, 300, 0.82, 0.93, 0.93, 0.94),
    Coverage("Pareto 1.5", "infinite", 1, 1, 1, 0.62, 0.63, 0.88),
    Coverage("Pareto 1.5", "infinite", 30, 30, 1, 0.77, 0.79, 0.91),
    Coverage("Pareto 1.5", "infinite", 300, 300, 1, 0.83, 0.83, 0.91),
    Coverage("bursts", "bursts", 1, 0.004, 0.901, 0.63, 0.64, 0.95),
    Coverage("bursts", "bursts", 30, 0.12, 0.901, 0.76, 0.74, 0.82),
    Coverage("bursts", "bursts", 300, 1.2, 0.901, 0.91, 0.92, 0.94),
    Coverage("bursts", "bursts", 3000, 12, 0.875, 0.95, 0.93, 0.95),
    Coverage("correlated", "dependence", 1, 1, 0.736, 0.89, 0.88, 0.92),
    Coverage("correlated", "dependence", 30, 30, 0.419, 0.91, 0.91, 0.94),
    Coverage("correlated", "dependence", 300, 300, 0.112, 0.94, 0.95, 0.95),
)


def measured(tail: HeavyTail, rounds: int, passed: float, kind: Estimated) -> Coverage:
    """Choose the measured runs with the least coverage of those like a run's first ``passed`` of ``rounds`` rounds.

    They are of the same cause, with the next fewer and the next more draws, and with at least as heavy a tail, as far
    as there are such. The law is the least heavy one; the lowest one if fewer rounds passed, whose share is not known.
    """
    cause: Cause = "infinite" if tail.infinite else "bursts" if tail.draws < rounds else "tail"
    alike = sorted((row for row in MEASURED if row.cause == cause), key=lambda row: (row.draws, row.share))
    draws = tail.draws * (passed / rounds)
    fewer = [row.draws for row in alike if row.draws <= draws][-1:]
    more = [row.draws for row in alike if row.draws >= draws][:1]
    near = []
    for number in {*fewer, *more}:
        those = [row for row in alike if row.draws == number]
        heavier = [row for row in those if row.share >= tail.share - ROUNDING] or those[-1:]
        near += heavier[:1] if passed >= rounds else heavier
    return min(near, key=lambda row: getattr(row, kind))


_WORDS: dict[Estimated, str] = {
    "mean": "of mean times and bytes",
    "difference": "of paired differences",
    "cost": "of costs to the target",
}
_HELPS: dict[Estimated, str] = {
    "difference": "More rounds a run help, or quantiles",
    "cost": "Intervals of speed-ups cover",
}
"""What helps instead."""
_COST: tuple[Estimated, ...] = ("cost",)


def heavy_tail_notes(
    studies: Sequence[tuple[RunSet, pd.DataFrame]], *, means: bool = False, differences: bool = False
) -> Iterator[str]:
    """Yield how often intervals of 95 % over seeds cover at worst in any study, where that is too seldom, and why.

    They are those of costs to the first target of a study's summary, and those of ``means`` over whole runs with their
    differences, or of ``differences`` alone.
    """
    shown: tuple[Estimated, ...] = ("mean", "difference") if means else ("difference",) if differences else ()
    worst: dict[tuple[str, tuple[Estimated, ...]], tuple[Coverage, str]] = {}
    for results, summary in studies:
        to_target = _rounds_to_target(summary)
        for name, (tail, rounds) in _heaviest(results).items():
            for kinds, passed in ((shown, float(rounds)), (_COST, to_target.get(name, 0.0))):
                if kinds and passed > 0:
                    row = measured(tail, rounds, passed, kinds[0])
                    known = worst.setdefault((name, kinds), (row, _cause(tail)))[0]
                    if getattr(row, kinds[0]) < getattr(known, kinds[0]):
                        worst[name, kinds] = row, _cause(tail)
    grouped: dict[str, list[str]] = {}
    for (name, kinds), (row, cause) in worst.items():
        if min(getattr(row, each) for each in kinds) < ENOUGH:
            grouped.setdefault(f"{_figures(row, kinds)}: {cause}. {_HELPS[kinds[-1]]}.", []).append(name)
    for sentence, names in grouped.items():
        yield f"{', '.join(names)}: {sentence}"


def _rounds_to_target(summary: pd.DataFrame) -> dict[str, float]:
    """Return the rounds that protocols took to the first target, where their mean has an interval."""
    rounds = summary[(summary["measure"] == "rounds_to_target") & summary["baseline"].isna() & summary["low"].notna()]
    rounds = rounds[rounds["target"].isin(summary["target"].dropna()[:1])]
    return dict(zip(rounds["protocol"], rounds["mean"], strict=True))


def _figures(row: Coverage, kinds: Sequence[Estimated]) -> str:
    shares = " and ".join(f"{100 * getattr(row, kind):.0f} % {_WORDS[kind]}" for kind in kinds)
    each = f"{row.rounds} round{'s' if row.rounds > 1 else ''} a run"
    return f"intervals of 95 % cover about {shares} (measured: {SEEDS} seeds, {row.law}, {each})"


def _heaviest(results: RunSet) -> dict[str, tuple[HeavyTail, int]]:
    """Return the worst tail of every protocol's runs that is worrying, with the rounds of its run."""
    worst: dict[str, tuple[HeavyTail, int]] = {}
    for run in results.runs:
        tail = run.info.heavy_tail
        if run.failed or tail is None or not tail.worrying:
            continue
        if run.protocol not in worst or tail.share > worst[run.protocol][0].share:
            worst[run.protocol] = tail, run.info.counts.get("rounds", math.ceil(tail.draws))
    return worst


def _cause(tail: HeavyTail) -> str:
    from vflsim.analysis.rounds import numbered  # imports all closed forms

    whose = f"the {tail.activity} of {numbered(tail.clients)} ({tail.kind})"
    if tail.infinite:
        return f"{whose} has no finite variance"
    return f"of {whose}, the slowest of {tail.draws:,.3g} draws has {math.floor(100 * tail.share)} % of the variance"
