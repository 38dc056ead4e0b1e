"""The sampling error that intervals over seeds leave out: all seeds are scored on the same sample of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vflsim.vocabulary.metrics import column_of

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

_ACCURACY = "accuracy"


def binomial_error(accuracy: float, rows: int) -> float:
    """Return the standard error √(a (1 − a) / n) of an accuracy on ``rows`` random rows; NaN for NaN."""
    return math.sqrt(accuracy * (1 - accuracy) / rows)


def sampling_note(results: RunSet, metric: str, means: Iterable[float]) -> Iterator[str]:
    """Yield the note that ± leaves out the sampling error of ``metric``'s rows; for an accuracy with its size.

    ``metric`` begins with its split, as in ``test_accuracy``; ``means`` are the protocols' means. Metrics of training
    rows have no note. The note has no size if runs do not report the number of rows.
    """
    split, _, bare = column_of(metric).partition("_")
    if split not in ("test", "validation"):
        return
    counts = {run.info.rows[split] for run in results.runs if split in run.info.rows}
    rows = counts.pop() if len(counts) == 1 else None
    which = f"the {rows:,} {split} rows" if rows else f"the {split} rows"
    note = f"± leaves out the sampling error of {which}: all seeds share one split"
    known = [mean for mean in means if 0 <= mean <= 1]
    if rows and known and bare == _ACCURACY:
        errors = [binomial_error(mean, rows) for mean in known]
        span = " to ".join(dict.fromkeys(f"{error:.2g}" for error in (min(errors), max(errors))))
        note += f" (of the accuracies shown, a binomial standard error of {span})"
    yield f"{note}."
