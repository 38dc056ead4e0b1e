"""Targets: which ones a scenario names, and where a run's metrics reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from vflsim.errors import ResultsError, ScenarioError
from vflsim.vocabulary.plain_yaml import parse_value
from vflsim.vocabulary.quantities import Number
from vflsim.vocabulary.targets import Target, Targets, TargetWatch, named

if TYPE_CHECKING:
    from vflsim.results.read import Results

_NUMBER: TypeAdapter[float] = TypeAdapter(Number)


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


def targets_of(results: Results) -> tuple[Target, ...]:
    """Return the targets to measure: see ``Results.targets``."""
    return results.targets


def declared(scenario: Mapping[str, Any], folder: Path) -> tuple[Target, ...]:
    """Collect the targets in a stored scenario: its own first, then ``stop``'s, then those of single protocols.

    All of them apply to every protocol. Raises ResultsError, which names the ``folder``, if one cannot be read.
    """
    stops = [scenario.get("stop"), *((protocol or {}).get("stop") for protocol in scenario["protocols"].values())]
    entries = [scenario.get("target"), *((stop or {}).get("target") for stop in stops)]
    try:
        context = {"symbols": _symbols(scenario)}
        return named([Targets.model_validate(each, context=context) for each in entries if each is not None])
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ResultsError(f"a target cannot be read: {problem}", f"{folder}: scenario.yaml") from error


def wanted_targets(results: Results, targets: Mapping[str, Any] | None) -> tuple[Target, ...]:
    """Collect the targets to measure: ``targets``, in a scenario's form; None: the scenario's evaluated ones.

    Raises ResultsError if ``targets`` are invalid, or name a metric that was not evaluated.
    """
    if targets is None:
        return tuple(target for target in targets_of(results) if target.metric in measurable(results))
    try:
        found = Targets.model_validate(dict(targets)).each
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


def measurable(results: Results) -> tuple[str, ...]:
    """List the columns that a target may name: the evaluated ones and, if there are any, the training loss."""
    return (*results.evaluated, "train_loss") if results.evaluated else ()


def _symbols(scenario: Mapping[str, Any]) -> dict[str, float]:
    """Collect the symbols of a stored scenario's formulas: its constants, and ``N`` if the scenario has it."""
    symbols: dict[str, float] = {}
    for name, value in (scenario.get("constants") or {}).items():
        symbols[name] = _NUMBER.validate_python(value, context={"symbols": symbols})
    clients = (scenario.get("partition") or {}).get("clients")
    if clients is not None:
        symbols["N"] = _NUMBER.validate_python(clients, context={"symbols": symbols})
    return symbols
