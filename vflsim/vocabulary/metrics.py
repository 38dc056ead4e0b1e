"""The metrics of a model's predictions, and the direction in which each improves."""

from __future__ import annotations

import math
import re
from typing import Literal

METRICS: dict[str, Literal["higher", "lower"]] = {
    "loss": "lower",
    "accuracy": "higher",
    "auc": "higher",
    "rmse": "lower",
    "r2": "higher",
}
"""Every metric and its better direction."""

SHARES = ("accuracy", "auc")
"""The metrics between 0 and 1, which may be written in per cent."""

_PARTY = re.compile(r"\.(server|client-[1-9][0-9]*)$")

COLUMNS = ("train_loss", *(f"{split}_{metric}" for split in ("validation", "test") for metric in METRICS))
"""The columns of a run's metrics table that measure the model, of any task.

A protocol whose parties have predictors of their own adds a column for each: ``test_accuracy.client-2``.
"""


def higher_is_better(metric: str) -> bool:
    """Say whether a metric grows as the model improves. A split may stand in front: ``test_accuracy``.

    Raises ValueError for an unknown metric.
    """
    try:
        return METRICS[_bare(metric)] == "higher"
    except KeyError:
        raise ValueError(f"unknown metric {metric}; allowed: {', '.join(METRICS)}") from None


def is_share(metric: str) -> bool:
    """Say whether a metric lies between 0 and 1. A split may stand in front: ``test_accuracy``."""
    return _bare(metric) in SHARES


def range_of(metric: str) -> tuple[float, float]:
    """Return the least and the greatest value that a metric can have. A split may stand in front: ``test_loss``."""
    least = -math.inf if _bare(metric) == "r2" else 0.0
    return least, math.inf if _bare(metric) in ("loss", "rmse") else 1.0


def column_of(metric: str) -> str:
    """Return the column that a party's own metric is about: ``test_accuracy`` of ``test_accuracy.client-2``."""
    return _PARTY.sub("", metric)


def belongs_to_a_party(metric: str) -> bool:
    """Say whether a metric is of one party's own predictor."""
    return _PARTY.search(metric) is not None


def _bare(metric: str) -> str:
    metric = column_of(metric)
    for split in ("train_", "validation_", "test_"):
        metric = metric.removeprefix(split)
    return metric
