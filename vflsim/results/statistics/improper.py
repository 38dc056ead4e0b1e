"""Metrics that no model can have: beyond their range, not finite without a reason, or declared nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import split_of
from vflsim.vocabulary.metrics import facts_of, is_known

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

SHOWN = 3
"""Rows shown per column and rule."""
_REMEDY = "mend the metric, or the range (least, most) and the exceptions (undefined) of its class"


def improper_metrics(metrics: Mapping[str, NDArray[Any]], info: RunInfo) -> Iterator[str]:
    """Yield a sentence for each of the first few rows of a run's ``metrics`` (by column) with an impossible value.

    A loss is at least 0, an accuracy between 0 and 1, and so on; all that was measured is finite. A run that failed or
    diverged may end in others.
    """
    for column, values in metrics.items():
        if split_of(column) is None:
            continue
        if not is_known(column, info.metrics):
            yield f"metrics: {column} is no metric of the task, nor one that the scenario declares"
            continue
        facts = facts_of(column, info.metrics)
        least, most = facts.span
        span = f"from {least:g} to {most:g}" if most < np.inf else f"at least {least:g}"
        yield from broken_rows(metrics, column, (values < least) | (values > most), f"must be {span}")
        if info.status == "finished":
            wrong = np.isinf(values) if facts.undefined or column == "train_loss" else ~np.isfinite(values)
            yield from broken_rows(metrics, column, wrong, f"must be finite: the run {info.status}")


def broken_rows(metrics: Mapping[str, NDArray[Any]], column: str, wrong: ArrayLike, rule: str) -> Iterator[str]:
    """Yield a sentence for each of the first few rows of the metrics that break a rule about a column."""
    for row in np.flatnonzero(wrong)[:SHOWN]:
        at, value = metrics["time_s"][row], metrics[column][row]
        yield f"metrics at {at} s (row {row}, round {metrics['round'][row]}): {column} is {value:g}, and {rule}"


def columns_of(table: pa.Table) -> dict[str, NDArray[Any]]:
    """Return the columns of a table of numbers."""
    return {name: table[name].to_numpy() for name in table.column_names}


def improper_notes(results: RunSet) -> Iterator[str]:
    """Yield a sentence for each impossible metric of a finished run. The run stays; its metrics' table has the values.

    Raises ResultsError if a table is damaged.
    """
    for run in results.runs:
        if not (run.failed or run.info.timing_only):
            for problem in improper_metrics(columns_of(run.table("metrics")), run.info):
                yield f"{run.protocol}, seed {run.seed}: {problem}; {_REMEDY}"
