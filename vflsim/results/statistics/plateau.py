"""The plateau of a metric, targets within the noise around it, and runs that ended past their best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
import pandas as pd

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
