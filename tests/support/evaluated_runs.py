"""Runs made of their evaluations alone: a metric at given times, with counts in proportion to time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from toy_runs import toy_run

from vflsim.results import RunTables, run_folder, write_run

Curve = Sequence[tuple[float, float]]
"""Seconds, and the test accuracy then."""


def write_evaluations(
    folder: Path,
    protocol: str,
    seed: int,
    curve: Curve,
    rate: float = 100,
    columns: Mapping[str, Any] | None = None,
    **info: Any,
) -> None:
    """Write a run with a round every second, ``rate`` bytes up a second, and other ``columns`` of the metrics."""
    time, accuracy = np.array(curve, dtype=float).T
    zeros = np.zeros(len(time), dtype=int)
    metrics = {"time_s": time, "round": time.astype(int), "bytes_up": (rate * time).astype(int)}
    metrics |= dict.fromkeys(("updates", "bytes_down", "bytes_peer"), zeros)
    metrics |= {"train_loss": 1 - accuracy, "test_accuracy": accuracy}
    metrics |= {f"{age}_{what}": zeros * np.nan for age in ("row_age", "client_age") for what in ("mean", "max")}
    metrics |= {name: np.asarray(values) for name, values in (columns or {}).items()}
    page = toy_run("wait", 0, horizon=2)[1].model_copy(update={"protocol": protocol, "seed": seed, **info})
    write_run(run_folder(folder, protocol, seed), RunTables(metrics), {}, page)
