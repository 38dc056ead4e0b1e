"""The plateau of a metric. The last value alone is noisy, and the best of many evaluations is biased upwards."""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd

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
