"""The level that a run has come to: its last value is noisy, and the best of many evaluations flatters."""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd

PLATEAU = 0.1
"""The share of a run's evaluations, from its end, whose mean is the plateau (at least one)."""


def plateau_of(metrics: pd.DataFrame, metric: str) -> float:
    """Mean of a metric over the last tenth of a run's evaluations, from its metrics table; NaN where there is none.

    A last row that stands for the models of the row before is no evaluation of its own.
    """
    values = metrics.drop_duplicates(["round", "updates"])[metric].dropna().to_numpy(dtype=np.float64)
    return float(values[-ceil(PLATEAU * len(values)) :].mean()) if len(values) else float("nan")
