"""The table of what servers answer under deadlines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vflsim.results.statistics.answers import answer_means, answer_metric, answered
from vflsim.text_table import TextTable
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.amounts import share as shared
from vflsim.vocabulary.metrics import facts_of, is_share

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

TITLE = "Answers under deadlines"
_NOTES = (
    "The server of the trained models predicts test rows at the deadline, or sooner if the embeddings of all clients "
    "have come. Means over queries, then over seeds ± 95 % Student-t intervals.",
    "Whole: the share of answers from the embeddings of all clients.",
)


def answers_table(results: RunSet) -> TextTable | None:
    """Tabulate the answers of a study's protocols, a row for each deadline; None where no run answered."""
    if not answered(results):
        return None
    metric, means = answer_metric(results), answer_means(results)
    share, unit = is_share(metric.partition("_")[2], results.own_metrics), facts_of(metric, results.own_metrics).unit
    rows = []
    for name in results.protocols:
        for row in means[means["protocol"] == name].to_dict("records"):
            mean, low, high = row["mean"], row["low"], row["high"]
            value = shared(mean, low, high) if share else quantity(mean, unit, max(mean - low, high - mean))
            waits = "none" if math.isinf(row["deadline_s"]) else quantity(row["deadline_s"], "s")
            after = quantity(float(f"{row['answer_s']:.3g}"), "s")
            rows.append((name, waits, after, f"{100 * row['complete']:.0f} %", value))
    header = ("protocol", "deadline", "answer after", "whole", metric.replace("_", " "))
    return TextTable(header, rows, title=TITLE, notes=_NOTES)
