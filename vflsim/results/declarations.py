"""What the stored scenario of results declares: targets, evaluations, and the symbols of its formulas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vflsim.errors import ResultsError
from vflsim.scenario.sections import Evaluate
from vflsim.vocabulary.metrics import Known
from vflsim.vocabulary.quantities import Number
from vflsim.vocabulary.targets import Target, Targets, named

_NUMBER: TypeAdapter[float] = TypeAdapter(Number)


def declared(scenario: Mapping[str, Any], folder: Path, metrics: Known) -> tuple[Target, ...]:
    """Collect the targets in a stored scenario: its own first, then ``stop``'s, then those of single protocols.

    All of them apply to every protocol; they may name its own ``metrics``. Raises ResultsError, which names the
    ``folder``, if one cannot be read.
    """
    stops = [scenario.get("stop"), *((protocol or {}).get("stop") for protocol in scenario["protocols"].values())]
    entries = [scenario.get("target"), *((stop or {}).get("target") for stop in stops)]
    try:
        context = {"symbols": symbols_of(scenario), "metrics": metrics}
        return named([Targets.model_validate(each, context=context) for each in entries if each is not None])
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ResultsError(f"a target cannot be read: {problem}", f"{folder}: scenario.yaml") from error


def evaluation_of(scenario: Mapping[str, Any], protocol: str) -> Evaluate | None:
    """Return when a stored scenario evaluates the models of a protocol; None if that cannot be read."""
    block = (scenario.get("protocols", {}).get(protocol) or {}).get("evaluate")
    keys = {**(scenario.get("evaluate") or {}), **(block or {})}
    try:
        return Evaluate.model_validate(keys, context={"symbols": symbols_of(scenario)})
    except ValidationError:
        return None


def symbols_of(scenario: Mapping[str, Any]) -> dict[str, float]:
    """Collect the symbols of a stored scenario's formulas: its constants, and ``N`` if the scenario has it."""
    symbols: dict[str, float] = {}
    for name, value in (scenario.get("constants") or {}).items():
        symbols[name] = _NUMBER.validate_python(value, context={"symbols": symbols})
    clients = (scenario.get("partition") or {}).get("clients")
    if clients is not None:
        symbols["N"] = _NUMBER.validate_python(clients, context={"symbols": symbols})
    return symbols
