"""How finely evaluations tell the costs to a target, and the sampling error that intervals over seeds leave out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pandas as pd

from vflsim.results.statistics.estimates import WIDE, Estimate
from vflsim.vocabulary.metrics import column_of
from vflsim.vocabulary.targets import Target

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

ROUNDS = "1 rounds"
"""The finest grid: after every step of the server."""


def resolution_note(results: RunSet, summary: pd.DataFrame, target: Target, measured: pd.DataFrame) -> Iterator[str]:
    """Name the protocols whose costs to a target evaluations tell too roughly, and propose a finer grid for each.

    ``summary`` and ``measured`` are the summary and the outcomes of the results.
    """
    rows = summary[(summary["target"] == str(target)) & summary["baseline"].isna()]
    wide = dict.fromkeys(row["protocol"] for row in rows.to_dict("records") if Estimate.of(row).wide)
    finer: dict[str, list[str]] = {}
    for name in wide:
        own = measured[(measured["protocol"] == name) & (measured["target"] == str(target)) & ~measured["censored"]]
        finer.setdefault(finer_grid(results, name, own), []).append(name)
    if finer:
        grids = "; ".join(f"`evaluate: {{every: {grid}}}` for {', '.join(names)}" for grid, names in finer.items())
        yield (
            f"Evaluated too seldom to tell costs to {target.bound}. They lie between the last evaluation that missed "
            f"the target and the first that met it, more than {100 * WIDE:g} % of the cost apart; “a … b” covers both. "
            f"Finer: {grids}."
        )


def finer_grid(results: RunSet, protocol: str, costs: pd.DataFrame) -> str:
    """Return how often to evaluate a protocol so that its ``costs``, rows of ``outcomes``, are told well enough.

    That is a tenth of what its quickest run had spent before, in the unit of the scenario's grid, but every round where
    rounds are longer.
    """
    run = next(run for run in results.runs if run.protocol == protocol)
    evaluate = results.evaluation(run)
    time, rounds = (costs[costs["measure"] == f"{cost}_to_target"].set_index("seed") for cost in ("time", "rounds"))
    if evaluate is not None and evaluate.every.unit == "seconds":
        wanted = WIDE * float(time["lower"].min())
        longest = float((time["value"] / rounds["value"]).max())  # a round, on average
        return ROUNDS if not wanted > longest else f"{_floor(wanted):g} s"
    return f"{max(1, math.floor(WIDE * float(rounds['lower'].min())))} rounds"


def _floor(value: float) -> float:
    """Round down to one significant digit."""
    step = 10.0 ** math.floor(math.log10(value))
    return math.floor(value / step) * step


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
