"""Targets to measure, and where a run's metrics reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import ValidationError

from vflsim.errors import ResultsError, ScenarioError
from vflsim.vocabulary.plain_yaml import parse_value
from vflsim.vocabulary.targets import Target, Targets, TargetWatch

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet


@dataclass(frozen=True)
class Passage:
    """Where a run reached a target: the row of its metrics at which the stretch that holds it began.

    For a run that did not reach it, ``row`` is the earliest at which it could have, had the run continued: where a
    stretch began that was still open at the end, or else the end.
    """

    row: pd.Series
    reached: bool


def passage(metrics: pd.DataFrame, target: Target, diverged: bool = False) -> Passage:
    """Find where one run reached a target, from the rows of its metrics (at least one) in order.

    An open stretch of a ``diverged`` run can no longer be completed.
    """
    watch = TargetWatch(target)
    names = ["time_s", "round", "updates", target.metric]
    rows = zip(*(metrics[name].to_numpy(dtype=float) for name in names), strict=True)
    for position, values in enumerate(rows):
        if watch.add({**dict(zip(names, values, strict=True)), "position": position}):
            break
    possible = watch.began is not None and (watch.complete or not diverged)
    return Passage(metrics.iloc[int(watch.began["position"]) if watch.began and possible else -1], watch.complete)


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
        found = Targets.model_validate(dict(targets), context={"metrics": results.own_metrics}).each
    except ValidationError as error:
        what, _, allowed = error.errors()[0]["msg"].removeprefix("Value error, ").partition("; allowed: ")
        raise ResultsError(f"no target: {what}", str(results.folder), allowed or "{test_accuracy: 0.9}") from error
    for target in found:
        if target.metric not in measurable(results):
            raise ResultsError(
                f"{target.metric!r} was not evaluated in these runs",
                str(results.folder),
                ", ".join(measurable(results)) or "none: nothing was evaluated",
            )
    return found


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
