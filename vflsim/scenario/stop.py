"""Stop rules of runs, and times of evaluation."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.vocabulary.base import Part, Shorthand
from vflsim.vocabulary.quantities import Count, PositiveNumber, PositiveSeconds, Quantity
from vflsim.vocabulary.stop_rules import StopRules
from vflsim.vocabulary.targets import Targets

FINEST = 1e-6
"""The finest precision of a mean: it takes 4 · 10¹² exponential rounds."""

Unit: TypeAlias = Literal["seconds", "rounds", "updates"]

_STEPS = re.compile(r"(?P<amount>.*\S)\s+(?P<unit>rounds?|updates?)\s*", re.DOTALL)
_PERCENT = re.compile(r"(?P<amount>.*\S)\s*%\s*", re.DOTALL)
_COUNT: TypeAdapter[int] = TypeAdapter(Count)
_SECONDS: TypeAdapter[float] = TypeAdapter(PositiveSeconds)


class _ShareField:
    """Annotation: reads ``1 %`` or ``0.01`` as a number above 0 and below 1."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_share)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, _PERCENT_SCHEMA]}


_PERCENT_SCHEMA: JsonSchemaValue = {"type": "string", "description": "a share of 100 %, above 0 % and below 100 %"}


def _share(value: Any, info: ValidationInfo) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    symbols = (info.context or {}).get("symbols") or {}
    number = float(Quantity().convert(percent["amount"] if percent else value, symbols))
    share = number / 100 if percent else number
    if not 0 < share < 1:
        remedy = f"; write {value} % if per cent are meant" if not percent and 1 <= share < 100 else ""
        raise ValueError(f"{value} is out of range; allowed: above 0 and below 1, as in 0.01 or 1 %{remedy}")
    return share


def _within_reach(share: float) -> float:
    if share < FINEST:
        raise ValueError(
            f"{share:g} is out of reach, as the rounds that a mean needs grow with the square; "
            f"allowed: at least {FINEST:g} ({100 * FINEST:g} %)"
        )
    return share


def _of_round_duration(value: Any) -> Any:
    return {"round_duration": value} if isinstance(value, str | int | float) else value


class Precision(Part):
    """Required precision of a run's mean round duration.

    Example: ``{round_duration: 1 %, confidence: 0.99}``
    """

    round_duration: Annotated[float, _ShareField(), AfterValidator(_within_reach)]
    """Half the interval's width, relative to the mean: ``1 %`` or 0.01."""
    confidence: Annotated[float, _ShareField()] = 0.95
    """Confidence of the interval."""


class Refinable(Part):
    """A part that another one of its kind can refine key by key."""

    def refined(self, by: Self | None) -> Self:
        """Return a copy with the keys that ``by`` sets."""
        return self if by is None else self.model_copy(update={key: getattr(by, key) for key in by.model_fields_set})


class Stop(Refinable):
    """Stop rules: a run ends as soon as one criterion is met.

    A protocol's own ``stop`` refines the scenario's key by key; ``null`` removes a criterion.

    Examples: ``{time: 60 s}``, ``{rounds: 500, updates: 4000, epochs: 20, target: {test_accuracy: 90 %},
    wall_clock: 1 h}``, ``{precision: 1 %, epsilon: 8}``, ``{rounds: 500, rules: {stuck: {kind: no_improvement, metric:
    validation_loss, evaluations: 5}}}``
    """

    time: PositiveSeconds | None = None
    """Virtual seconds."""
    target: Targets | None = None
    """When the first of these metrics has held its value: ``{test_accuracy: 0.9, for: 5 evaluations}``."""
    rounds: Count | None = None
    """Steps of the server."""
    updates: Count | None = None
    """Steps of the clients, all together."""
    epochs: PositiveNumber | None = None
    """Passes over the training rows."""
    precision: (
        Annotated[Precision, Shorthand(_of_round_duration, {"anyOf": [{"type": "number"}, _PERCENT_SCHEMA]})] | None
    ) = None
    """When the mean round duration is precise enough: ``1 %`` (after warm-up, by batch means)."""
    epsilon: PositiveNumber | None = None
    """Before a client would release so much that its ε exceeds this, at its mechanism's δ."""
    wall_clock: PositiveSeconds | None = None
    """Real seconds; makes a run non-reproducible."""
    rules: StopRules | None = None
    """Rules on metrics, by names of your choice, asked at every evaluation. Without training none of them is asked."""

    @property
    def criteria(self) -> dict[str, Any]:
        """The criteria that are set."""
        return {key: value for key in type(self).model_fields if (value := getattr(self, key)) is not None}

    def share(self, **done: float) -> float:
        """Return the completed share of a run, from what it has ``done`` so far by the name of the criterion.

        0 where none of the criteria tells, since only a target, say, ends the run.
        """
        return max((min(1.0, done[key] / limit) for key, limit in self.criteria.items() if key in done), default=0.0)


class Every(Part):
    """An interval in virtual seconds, rounds (server steps) or updates (client steps)."""

    amount: float
    unit: Unit


class _EveryField:
    """Annotation: reads ``5 s``, ``0.5``, ``10 rounds`` or ``N updates`` as an ``Every``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_every)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        text = {"type": "string", "description": "a duration (5 s), or a number of rounds or updates (10 rounds)"}
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, text]}


def _every(value: Any, info: ValidationInfo) -> Every:
    steps = _STEPS.fullmatch(value) if isinstance(value, str) else None
    if steps is None:
        return Every(amount=_SECONDS.validate_python(value, context=info.context), unit="seconds")
    unit: Unit = "rounds" if steps["unit"].startswith("round") else "updates"
    return Every(amount=_COUNT.validate_python(steps["amount"], context=info.context), unit=unit)


def _ascending(deadlines: tuple[float, ...]) -> tuple[float, ...]:
    if len({*deadlines}) < len(deadlines):
        raise ValueError("a deadline is given twice; allowed: each once")
    return tuple(sorted(deadlines))


_DURATION_SCHEMA: JsonSchemaValue = {"type": ["number", "string"], "description": "a duration (50 ms)"}


class Evaluate(Refinable):
    """Evaluation of the models on validation and test rows; skipped if they have not changed.

    Example: ``{every: 10 rounds, costs_time: true, deadline: [10 ms, 50 ms], missing: zeros, query_rows: 1}``
    """

    every: Annotated[Every, _EveryField()] = Every(amount=10, unit="rounds")
    """``5 s``, ``10 rounds`` or ``100 updates``."""
    costs_time: bool = False
    """Whether an evaluation takes virtual time, like any other computation."""
    deadline: (
        Annotated[
            tuple[PositiveSeconds, ...],
            Field(min_length=1),
            AfterValidator(_ascending),
            Shorthand(lambda value: value if isinstance(value, list | tuple) else [value], _DURATION_SCHEMA),
        ]
        | None
    ) = None
    """How long the server waits for embeddings of test rows before it predicts, when training has ended: a duration, or
    several."""
    missing: Literal["absent", "zeros", "mean"] = "absent"
    """What stands for an embedding that misses the deadline: nothing, as the aggregate understands it; zeros; or the
    client's mean embedding of all training rows."""
    query_rows: Count | None = None
    """The test rows that the server asks about at a time. Default: those of a batch."""
