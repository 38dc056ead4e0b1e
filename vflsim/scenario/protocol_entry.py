"""A protocol of a scenario with its overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from vflsim.codecs import AnyCodec
from vflsim.learning.privacy.blinding import AnyBlinding
from vflsim.learning.privacy.mechanisms import AnyMechanism
from vflsim.learning.training import TrainingOverride
from vflsim.protocols import AnyProtocol
from vflsim.scenario.evaluate import Evaluate
from vflsim.scenario.split_model import ModelsOverride
from vflsim.stopping.rules import Stop
from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.entries import with_keys

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
