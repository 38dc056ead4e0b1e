"""Targets to measure, and where a run's metrics reach them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import ValidationError

from vflsim.errors import ResultsError, ScenarioError
from vflsim.scenario.sections import Evaluate
from vflsim.vocabulary.plain_yaml import parse_value
from vflsim.vocabulary.targets import Target, Targets, TargetWatch

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet


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


def targets_of(results: RunSet) -> tuple[Target, ...]:
    """Return the targets to measure: see ``RunSet.targets``."""
    return results.targets


def wanted_targets(results: RunSet, targets: Mapping[str, Any] | None) -> tuple[Target, ...]:
    """Collect the targets to measure: ``targets``, in a scenario's form; None: the scenario's evaluated ones.

    Raises ResultsError if ``targets`` are invalid, or name a metric that was not evaluated.
    """
    if targets is None:
        return tuple(target for target in targets_of(results) if target.metric in measurable(results))
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
