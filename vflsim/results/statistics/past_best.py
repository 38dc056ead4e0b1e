"""Protocols whose runs ended past their best: what they end with depends on when they were stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vflsim.results.statistics.near_plateau import NEAR, level
from vflsim.results.statistics.plateau import best_of, distinct, highest_mean, plateau_of
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.metrics import higher_is_better

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

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
    metric, metrics, found = results.main_metric, results.metrics, dict[str, PastBest]()
    higher = higher_is_better(metric, results.own_metrics)
    protocols, seeds = metrics["protocol"].to_numpy(object), metrics["seed"].to_numpy()
    for name in results.protocols:
        finished = [run for run in results.runs if run.protocol == name and not run.failed]
        runs = [run.seed for run in finished if run.info.stop_reason != "target"]
        steps = [distinct(metrics[(protocols == name) & (seeds == seed)]) for seed in runs]
        steps = [each for each in steps if metric in each and each[metric].notna().any()]
        noise = [known for each in steps if (known := _noise(each, metric)) is not None]
        if not noise:
            continue
        final = np.array([plateau_of(each, metric) for each in steps])
        lost = np.abs(np.array([highest_mean(each, metric, higher) for each in steps]) - final)
        spread = float(final.std(ddof=1)) if len(final) > 1 else 0.0
        if lost.mean() > max(spread, NEAR * float(np.mean(noise))):
            best, times = np.transpose([best_of(each, metric, higher) for each in steps])
            found[name] = PastBest(float(best.mean()), float(times.mean()), float(final.mean()))
    return found


def _noise(steps: pd.DataFrame, metric: str) -> float | None:
    """Return the standard deviation of the noise of a run's evaluations; of few, from the differences of later ones."""
    if (known := level(steps, metric)) is not None:
        return known[1]
    values = steps[metric].dropna().to_numpy(dtype=np.float64)
    later = np.diff(values[len(values) // 2 :])
    return float(later.std(ddof=1) / np.sqrt(2)) if len(later) >= FEWEST_STEPS else None


def past_best_note(results: RunSet) -> Iterator[str]:
    """Say of which protocols the final level ranks when runs were stopped; nothing if there are none."""
    if not results.evaluated or not (found := past_best(results)):
        return
    metric = results.main_metric.replace("_", " ")
    named = ", ".join(
        f"{name} ({each.best:.3g} at {quantity(float(f'{each.time_s:.3g}'), 's')}, {each.final:.3g} at the end)"
        for name, each in found.items()
    )
    yield (
        f"Past their best in {metric}: {named}. So the final level ranks when runs were stopped, not the protocols. "
        "End them at their best (stop.rules, on validation rows), or compare the best values. These are optimistic, "
        "since each is chosen from many evaluations of the rows it is measured on."
    )
