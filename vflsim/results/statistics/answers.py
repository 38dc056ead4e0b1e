"""What the servers of trained runs answer under deadlines: means over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from vflsim.errors import ResultsError
from vflsim.intervals.means import t_interval
from vflsim.vocabulary.metrics import column_of, facts_of

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet


def answer_metric(results: RunSet, metric: str | None = None) -> str:
    """Return the column of ``results.answers`` to compare: ``metric``, or the main one as far as answers have it.

    Raises NotRecordedError if no run answered under deadlines, ResultsError for a metric that answers do not have.
    """
    have = [name for name in results.answers.columns if name.startswith("test_")]
    main = f"test_{column_of(results.main_metric).partition('_')[2]}"
    chosen = metric or next(name for name in (main, *have) if name in have)
    if chosen not in have:
        raise ResultsError(f"answers under deadlines have no {chosen!r}", str(results.folder), ", ".join(have))
    return chosen


def answer_means(results: RunSet, metric: str | None = None) -> pd.DataFrame:
    """Average the answers of finished runs over seeds, for each protocol and deadline (infinite: waits for all).

    Columns: protocol, deadline_s, answer_s (the mean time of an answer), complete and embeddings (means), and mean, low
    and high of the metric, with a Student-t interval of 95 % within the metric's bounds (NaN for one seed), n. Raises
    as ``answer_metric`` does.
    """
    chosen = answer_metric(results, metric)
    least, greatest = facts_of(chosen, results.own_metrics).span
    failed, rows = {(run.protocol, run.seed) for run in results.failed}, []
    frame = results.answers
    frame = frame[[key not in failed for key in zip(frame["protocol"], frame["seed"], strict=True)]]
    for (protocol, deadline), group in frame.groupby(["protocol", "deadline_s"], sort=True, observed=True):
        interval = t_interval(group[chosen].to_numpy())
        low, high = max(interval.low, least), min(interval.high, greatest)
        means = (group[name].mean() for name in ("answer_s_mean", "complete", "embeddings_mean"))
        rows.append((protocol, deadline, *means, interval.mean, low, high, interval.n))
    columns = ["protocol", "deadline_s", "answer_s", "complete", "embeddings", "mean", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def answered(results: RunSet) -> bool:
    """Return whether some finished run answered under deadlines."""
    return any(run.has("answers") for run in results.runs if not run.failed)
