"""What reaching a target costs, and what runs had reached within a budget: seconds, rounds, bytes or joules."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from vflsim.books import BYTES
from vflsim.errors import ResultsError, ScenarioError
from vflsim.intervals import ROUNDING
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.estimates import WIDE
from vflsim.results.store.run import NotRecordedError
from vflsim.scenario.sections import Evaluate
from vflsim.vocabulary.budgets import Budget, Cost
from vflsim.vocabulary.metrics import unit_of
from vflsim.vocabulary.plain_yaml import parse_value
from vflsim.vocabulary.targets import Target, Targets, TargetWatch
from vflsim.world.run_tables import ENERGY

SPENT: dict[Cost, str] = {"time": "time_s", "rounds": "round", "bytes": "bytes", "energy": ENERGY}
"""The columns of ``metrics_by_run`` that count each cost."""


def metrics_by_run(results: RunSet) -> dict[tuple[Hashable, ...], pd.DataFrame]:
    """Return the metrics of each run by protocol and seed, with the ``bytes`` of all directions as a column more."""
    metrics = results.metrics.assign(bytes=lambda m: m[[*BYTES]].sum(axis=1))
    return dict(iter(metrics.groupby(["protocol", "seed"], observed=True, sort=False)))


@dataclass(frozen=True)
class Passage:
    """Where a run reached a target: the row of its metrics at which the stretch that holds it began.

    The models met it after the row ``before``, which did not, up to ``row``. For a run that did not reach it,
    ``before`` is the earliest at which it could have, had the run continued: where a stretch that was still open at the
    end had not begun yet, or else the end.
    """

    before: pd.Series
    row: pd.Series
    reached: bool


def passage(metrics: pd.DataFrame, target: Target, diverged: bool = False, evaluate: Evaluate | None = None) -> Passage:
    """Find where one run reached a target, from the rows of its metrics (at least one) in order.

    An open stretch of a ``diverged`` run can no longer be completed. ``evaluate`` says when models were evaluated
    (None: unknown), for models that had not changed have no row.
    """
    watch = TargetWatch(target)
    names = ["time_s", "round", "updates", target.metric]
    rows = zip(*(metrics[name].to_numpy(dtype=float) for name in names), strict=True)
    for position, values in enumerate(rows):
        if watch.add({**dict(zip(names, values, strict=True)), "position": position}):
            break
    possible = watch.began is not None and (watch.complete or not diverged)
    if watch.began is None or not possible:
        return Passage(metrics.iloc[-1], metrics.iloc[-1], reached=False)
    at = int(watch.began["position"])
    row = metrics.iloc[at]
    before = row if at == 0 else spent_before(metrics.iloc[at - 1], row, evaluate)
    return Passage(before, row, watch.complete)


def spent_before(before: pd.Series, row: pd.Series, evaluate: Evaluate | None) -> pd.Series:
    """Return what a run had certainly spent when its models changed to those of ``row``, from those of the one before.

    A row ``every: 5 s`` follows the first change since the last multiple of 5 s. After every round, costs count from
    the server's step: that of the row itself, even if a client's step since the row before would have been enough.
    """
    spent = before.copy()
    if row["updates"] == before["updates"]:  # a step of the server it was
        spent["round"] = min(before["round"] + 1, row["round"])
    if evaluate is None or evaluate.costs_time:
        return spent
    amount = evaluate.every.amount
    if evaluate.every.unit == "rounds" and amount == 1 and row["round"] - before["round"] == 1:
        return row
    if evaluate.every.unit == "seconds":
        turns = row["time_s"] / amount
        last = round(turns) if math.isclose(turns, round(turns), rel_tol=1e-9) else math.ceil(turns)
        spent["time_s"] = max(before["time_s"], (last - 1) * amount)
    return spent


def wanted_targets(results: RunSet, targets: Mapping[str, Any] | None) -> tuple[Target, ...]:
    """Collect the targets to measure: ``targets``, in a scenario's form; None: the scenario's evaluated ones.

    Raises ResultsError if ``targets`` are invalid, or name a metric that was not evaluated.
    """
    if targets is None:
        return tuple(target for target in results.targets if target.metric in measurable(results))
    try:
        wanted = Targets.model_validate(dict(targets), context={"metrics": results.own_metrics}).each
    except ValidationError as error:
        what, _, allowed = error.errors()[0]["msg"].removeprefix("Value error, ").partition("; allowed: ")
        raise ResultsError(f"no target: {what}", str(results.folder), allowed or "{test_accuracy: 0.9}") from error
    for target in wanted:
        if target.metric not in measurable(results):
            raise ResultsError(
                f"{target.metric!r} was not evaluated in these runs",
                str(results.folder),
                ", ".join(measurable(results)) or "none: nothing was evaluated",
            )
    return wanted


def target_from_text(text: str) -> dict[str, Any]:
    """Parse a target from the command line: ``test_accuracy=0.85``, or ``{test_accuracy: 0.85, for: 20 s}``.

    Raises ResultsError for any other text.
    """
    metric, equals, value = text.partition("=")
    if equals and not text.lstrip().startswith("{"):
        return {metric.strip(): value.strip()}
    try:
        parsed, _ = parse_value(text, "--target")
    except ScenarioError:
        parsed = None
    if not isinstance(parsed, dict):
        allowed = "test_accuracy=0.85, or {test_accuracy: 0.85, for: 20 s}"
        raise ResultsError(f"{text!r} is no target", "--target", allowed)
    return parsed


def measurable(results: RunSet) -> tuple[str, ...]:
    """List the columns that a target may name: the evaluated ones and, if there are any, the training loss."""
    return (*results.evaluated, "train_loss") if results.evaluated else ()


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
    """Return the values of ranked protocols as rows of :func:`~vflsim.results.statistics.outcomes`."""
    rows = stood[stood["protocol"].isin(ranked(results, stood))]
    facts = {"measure": f"within_{metric}", "target": None, "unit": unit_of(metric, results.own_metrics)}
    return rows[["protocol", "seed", "value"]].assign(**facts, lower=rows["value"], censored=False)


def evaluated_too_seldom(stood: pd.DataFrame, budget: Budget) -> list[str]:
    """Name the protocols with a value that may be out of date: known until less than 90 % of the budget was spent."""
    old = stood["value"].notna() & (stood["until"] < (1 - WIDE) * budget.amount)
    return [*dict.fromkeys(stood.loc[old, "protocol"].astype(str))]
