"""Targets within the noise around a plateau: chance decides when, and whether, they are reached."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vflsim.results.statistics.plateau import distinct
from vflsim.vocabulary.targets import Target

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

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


def near_plateau_note(results: RunSet, target: Target) -> Iterator[str]:
    """Name the protocols at whose plateaus a target lies within the noise, if there are any.

    Runs that the target ended have no plateau, and do not count.
    """
    near: list[str] = []
    metrics = results.metrics
    protocols, seeds = metrics["protocol"].to_numpy(object), metrics["seed"].to_numpy()
    for name in results.protocols:
        finished = [run for run in results.runs if run.protocol == name and not run.failed]
        runs = [run for run in finished if run.info.stop_reason != "target"]
        own = [metrics[(protocols == name) & (seeds == run.seed)] for run in runs]
        found = [level(distinct(rows), target.metric) for rows in own]
        levels = np.array([each for each in found if each is not None])
        if len(levels) and (noise := float(levels[:, 1].mean())) > 0:
            end = float(levels[:, 0].mean())
            if abs(end - target.value) <= NEAR * noise:
                near.append(f"{name} ({end:.4g}, standard deviation {noise:.2g})")
    if near:
        yield (
            f"{target.bound} lies within the noise where these end: {', '.join(near)}. When they reach it, if they do, "
            "depends on chance and on how often is evaluated: choose another target, or hold it for longer."
        )
