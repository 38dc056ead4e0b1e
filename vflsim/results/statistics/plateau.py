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
