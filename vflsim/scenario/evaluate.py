"""What a run records, when it is evaluated, and how its queries are answered."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.vocabulary.base import Part, Refinable, Shorthand
from vflsim.vocabulary.quantities import Count, PositiveSeconds

Unit: TypeAlias = Literal["seconds", "rounds", "updates"]

_STEPS = re.compile(r"(?P<amount>.*\S)\s+(?P<unit>rounds?|updates?)\s*", re.DOTALL)
_COUNT: TypeAdapter[int] = TypeAdapter(Count)
_SECONDS: TypeAdapter[float] = TypeAdapter(PositiveSeconds)


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


Record: TypeAlias = Literal["events", "rounds", "summary"]
"""The tables kept of a run: all; metrics and rounds; metrics alone."""


def _count(value: Any) -> Any:
    """Expand ``512 rows`` to 512."""
    rows = re.fullmatch(r"(.*\S)\s+rows?\s*", value) if isinstance(value, str) else None
    return value if rows is None else rows[1]


def _viewed(value: Any) -> Any:
    """Expand ``512 rows`` and 512 to ``{rows: 512}``."""
    return value if value is None or isinstance(value, Mapping | ViewRecording) else {"rows": value}


ROWS = {"type": "string", "pattern": r"^\d+ rows?$"}


class ViewRecording(Part):
    """What a run keeps of what its parties receive about some training rows.

    Example: ``{rows: 512 rows, keep: all}``
    """

    rows: Annotated[Count, Shorthand(_count, ROWS)]
    """How many training rows; the seed chooses them."""
    keep: Literal["last", "all"] = "last"
    """What arrived ``last`` about a row, or ``all`` that ever arrived: what an attacker has who forgets nothing."""


class Recording(Part):
    """What a run keeps beside its weights.

    Example: ``{tables: rounds, views: 512 rows}``
    """

    tables: Record = "events"
    """Which tables: ``events`` (all), ``rounds`` (metrics and rounds) or ``summary`` (metrics alone)."""
    views: Annotated[ViewRecording, Shorthand(_viewed, {"anyOf": [{"type": "integer", "minimum": 1}, ROWS]})] | None = (
        None
    )
    """Keep what every party received about so many training rows (``512 rows``), for ``vflsim evaluate``."""


def recording(value: Any) -> Any:
    """Expand ``summary`` to ``{tables: summary}``."""
    return value if isinstance(value, Mapping | Recording) else {"tables": value}
