"""What runs had reached when they had spent a budget: seconds, rounds, bytes or joules."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vflsim.errors import ResultsError
from vflsim.intervals.means import ROUNDING
from vflsim.results.statistics.estimates import WIDE
from vflsim.results.statistics.summary import SPENT, metrics_by_run
from vflsim.results.statistics.targets import spent_before
from vflsim.results.store.run import NotRecordedError
from vflsim.scenario.sections import Evaluate
from vflsim.vocabulary.metrics import unit_of
from vflsim.vocabulary.targets import Budget

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet


@dataclass(frozen=True)
class Standing:
    """A metric's ``value`` in one run at the last evaluation that a budget allows, NaN for none.

    The run had spent ``at`` at that evaluation, in the budget's unit. Its models certainly had that value until it had
    spent ``until``, at most the budget. ``ended``: the run ended before it had spent the budget.
    """

    value: float = math.nan
    at: float = math.nan
    until: float = math.nan
    ended: bool = False


def standing(
    metrics: pd.DataFrame, metric: str, budget: Budget, diverged: bool = False, evaluate: Evaluate | None = None
) -> Standing:
    """Find what one run had reached within a budget, from the rows of its metrics, as of ``metrics_by_run``, in order.

    The last evaluation counts and not the best one, which would be chosen on the rows that it is measured on. A run
    that had ended keeps its last value, unless it ``diverged``. There is no value if no evaluation lies between the
    start and the budget, unless the models were certainly still those of the start. ``evaluate`` says when models were
    evaluated (None: unknown).
    """
    spent = metrics[SPENT[budget.cost]].to_numpy(np.float64)
    inside = int((spent <= budget.amount * (1 + ROUNDING)).sum())
    ended = inside == len(spent) and bool(spent[-1] < budget.amount * (1 - ROUNDING))
    known = np.flatnonzero(metrics[metric].notna().to_numpy()[:inside])
    if not len(known) or (ended and diverged):
        return Standing(ended=ended)
    last = int(known[-1])
    row, until = metrics.iloc[last], budget.amount
    if last + 1 < len(spent):
        after = metrics.iloc[last + 1]
        until = min(until, max(spent[last], float(spent_before(row, after, evaluate)[SPENT[budget.cost]])))
    untrained = row["round"] == 0 and row["updates"] == 0
    if untrained and until < budget.amount:
        return Standing(ended=ended)
    return Standing(float(row[metric]), float(spent[last]), until, ended)


def standings(results: RunSet, budget: Budget, metric: str) -> pd.DataFrame:
    """Find what each run had reached within a budget; columns: protocol, seed, and the fields of :class:`Standing`.

    Runs that failed have no row, unless they diverged. Raises ResultsError for a metric that was not evaluated,
    NotRecordedError for joules if no party says what it draws.
    """
    if metric not in results.evaluated:
        raise ResultsError(
            f"{metric!r} was not evaluated in these runs", str(results.folder), ", ".join(results.evaluated) or "none"
        )
    if SPENT[budget.cost] not in {*results.metrics.columns, "bytes"}:
        remedy = "give parties a `power`, and run it again"
        raise NotRecordedError("no party says what it draws", str(results.folder), "another budget", remedy)
    by_run = metrics_by_run(results)
    rows = [
        {"protocol": run.protocol, "seed": run.seed}
        | asdict(standing(frame, metric, budget, run.diverged, results.evaluation(run)))
        for run in results.runs
        if (not run.failed or run.diverged) and (frame := by_run.get((run.protocol, run.seed))) is not None
    ]
    return pd.DataFrame(rows, columns=["protocol", "seed", *(field.name for field in fields(Standing))])


def ranked(results: RunSet, stood: pd.DataFrame) -> list[str]:
    """Name the protocols whose runs all have a value; one without a finished run is not among them."""
    whole = stood["value"].notna().groupby(stood["protocol"], sort=False).all()
    return [name for name in results.protocols if whole.get(name, False)]


def as_outcomes(results: RunSet, stood: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the values of ranked protocols as rows of :func:`~vflsim.results.statistics.summary.outcomes`."""
    rows = stood[stood["protocol"].isin(ranked(results, stood))]
    facts = {"measure": f"within_{metric}", "target": None, "unit": unit_of(metric, results.own_metrics)}
    return rows[["protocol", "seed", "value"]].assign(**facts, lower=rows["value"], censored=False)


def evaluated_too_seldom(stood: pd.DataFrame, budget: Budget) -> list[str]:
    """Name the protocols with a value that may be out of date: known until less than 90 % of the budget was spent."""
    old = stood["value"].notna() & (stood["until"] < (1 - WIDE) * budget.amount)
    return [*dict.fromkeys(stood.loc[old, "protocol"].astype(str))]
