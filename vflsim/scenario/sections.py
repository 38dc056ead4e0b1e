"""A protocol of a scenario with its overrides, and the split model that it trains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.codecs import AnyCodec
from vflsim.learning.models.aggregates import AnyAggregate
from vflsim.learning.models.client import AnyClientModel, ClientModel
from vflsim.learning.models.server import AnyServerModel, ServerModel
from vflsim.learning.privacy.blinding import AnyBlinding
from vflsim.learning.privacy.mechanisms import AnyMechanism
from vflsim.learning.training import TrainingOverride
from vflsim.protocols import AnyProtocol
from vflsim.stopping import Stop
from vflsim.vocabulary.base import Part, Refinable, Shorthand, as_in, kind_from_text
from vflsim.vocabulary.entries import Entry, OneOrMany, PerClient, with_keys
from vflsim.vocabulary.quantities import Count, PositiveSeconds, counted

Unit: TypeAlias = Literal["seconds", "rounds", "updates"]


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
    amount, unit = counted(value, ("round", "update"), info)
    return Every(amount=amount, unit=unit)


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


ClientModels: TypeAlias = Annotated[
    tuple[Annotated[Entry[ClientModel], PerClient(AnyClientModel)], ...], Field(min_length=1), OneOrMany()
]
"""One model for all clients, or a list of models with ``select``: the last one that selects a client counts."""

Predictors: TypeAlias = Annotated[
    tuple[Annotated[Entry[ServerModel], PerClient(AnyServerModel)], ...], Field(min_length=1), OneOrMany()
]
"""Prediction nets of clients, of the kinds of the server's model: one, or a list with ``select``."""


class Models(Part):
    """The split model: one network per client, how their embeddings are joined, and the server's network.

    Example: ``{client: {kind: mlp, hidden: [32], embedding: 16}, aggregate: mean, server: {kind: mlp, hidden:
    [32]}, active: {kind: linear, embedding: 16}, predictor: {kind: linear}}``
    """

    client: ClientModels
    """One model for all, or a list of models with ``select``: the last one that selects a client counts."""
    aggregate: AnyAggregate
    """How the server joins the embeddings."""
    server: AnyServerModel
    """The server's network, from the joined embedding to the prediction."""
    active: AnyClientModel | None = None
    """The server's embedding model, if ``partition.active`` gives the server features. The aggregate joins its
    embedding first; ``training.server_optimizer`` trains it."""
    predictor: Predictors | None = None
    """The clients' prediction nets, in protocols where every party has one: one for all, or a list with ``select``.
    Clients that no entry selects have one like ``server``, which is the active party's."""

    def overridden(self, by: ModelsOverride | None) -> Models:
        """Return a copy with the parts that ``by`` gives; client models are replaced as a whole."""
        if by is None:
            return self
        values = {key: getattr(by, key) for key in by.model_fields_set}
        return self.model_copy(
            update={key: value for key, value in values.items() if value is not None or key == "active"}
        )


class ModelsOverride(Part):
    """The parts of the split model that one protocol replaces; ``active: null`` leaves the server's features unused.

    Example: ``{client: {kind: linear, embedding: 16}, aggregate: concat, server: {kind: linear}, active: {kind:
    linear, embedding: 16}, predictor: {kind: linear}}``
    """

    model_config = ConfigDict(json_schema_extra=as_in(Models))

    client: ClientModels | None = None
    aggregate: AnyAggregate | None = None
    server: AnyServerModel | None = None
    active: AnyClientModel | None = None
    predictor: Predictors | None = None


_OVERRIDES = ("models", "training", "stop", "evaluate", "mechanism", "blinding", "codec")


class ProtocolEntry(Part):
    """A protocol, with its own ``models``, ``training``, ``stop`` and ``evaluate``, which refine the scenario's by key.

    ``codec`` replaces the scenario's. ``mechanism`` bounds and perturbs the clients' embeddings before their upload;
    without one they are uploaded unchanged. ``blinding`` then adds masks that cancel in the sum over all clients.

    Examples: ``{kind: synchronous, training: {batch: all}, models: {aggregate: mean}, stop: {time: 600 s},
    evaluate: {every: 5 s}, mechanism: {kind: gaussian, clip: 1, delta: 1e-5, noise_multiplier: 0.5}, codec:
    float16}``, ``{kind: synchronous, blinding: {bits: 64, fraction: 20}}``
    """

    protocol: AnyProtocol
    models: ModelsOverride | None = None
    """Models in place of the scenario's."""
    training: TrainingOverride | None = None
    """Training settings in place of the scenario's."""
    stop: Stop | None = None
    """Stop rules that refine the scenario's, key by key; ``null`` removes one."""
    evaluate: Evaluate | None = None
    """Times of evaluation that refine the scenario's, key by key."""
    mechanism: AnyMechanism | None = None
    """Bounds and perturbs the clients' embeddings before their upload; by default they are uploaded unchanged."""
    blinding: AnyBlinding | None = None
    """Adds masks to the clients' embeddings that cancel in the sum over all of them: its keys, ``on`` or ``off``. By
    default off, but where the protocol has its own."""
    codec: Annotated[AnyCodec, Shorthand(kind_from_text, {"type": "string"})] | None = None
    """What this protocol's messages become on the wire, in place of the scenario's."""

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return {"protocol": value}
        overrides = {key: value[key] for key in _OVERRIDES if key in value}
        return {"protocol": {key: item for key, item in value.items() if key not in overrides}, **overrides}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        fields = handler.resolve_ref_schema(handler(schema))["properties"]
        overrides = {key: fields[key] for key in _OVERRIDES}
        return with_keys(fields["protocol"], handler.resolve_ref_schema, overrides)
