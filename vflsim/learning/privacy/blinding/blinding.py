"""What a scenario says of blinding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import Index

BLINDING_OFF: Literal["off"] = "off"
HEADROOM_BITS = 2
"""Leading bits that a sum of all clients never uses. A sum in which a mask is left over uses them: the guard."""


class Blinding(Part):
    """Clients upload fixed-point embeddings under masks that cancel in the sum over all of them (EASTER Eq. 4–6).

    Example: ``{bits: 64, fraction: 20, missing: skip}``
    """

    bits: Literal[32, 64] = 32
    """Integers are modulo 2^bits, and an element of an upload takes as many bits."""
    fraction: Index = 16
    """Bits after the binary point: an embedding is rounded to a multiple of 2^-fraction."""
    missing: Literal["wait", "skip", "stop"] = "wait"
    """What happens in a round in which the embedding of some client is missing, so that masks are left over: ``wait``
    for it, ``skip`` the round, or ``stop`` the run."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.largest(1)
        return self

    def largest(self, clients: int) -> float:
        """Return the largest magnitude of an element that ``clients`` clients can add up without wrapping around.

        Raises ``ValueError`` if it is below 1.
        """
        integers = (1 << self.bits - 1 - HEADROOM_BITS) // clients
        largest = math.ldexp(integers, -self.fraction)
        if largest < 1:
            most = self.bits - 1 - HEADROOM_BITS - (clients - 1).bit_length()
            many = f"{clients} client{'' if clients == 1 else 's'}"
            raise ValueError(
                f"fraction: {self.fraction} of {self.bits} bits leave embeddings of {many} magnitudes up to "
                f"{largest:g}; allowed: 0 to {most}, for magnitudes of at least 1"
            )
        return largest

    def promise(self, clients: int) -> str:
        """Describe the protection and the range before any run, in words."""
        return (
            f"embeddings blinded: the server sees sums over {clients} clients; {self.bits} bits, {self.fraction} after "
            f"the point, magnitudes up to {self.largest(clients):g}"
        )


class OnOrOff:
    """Annotation: ``on`` is short for the defaults, and ``off`` stays ``off``. YAML 1.1's booleans mean the same."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(_plain)
        return core_schema.no_info_wrap_validator_function(
            _chosen, handler.generate_schema(Blinding), serialization=written
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["on", "off", True, False]}, handler(schema)]}


def _chosen(value: Any, validate: Callable[[Any], Blinding]) -> Blinding | Literal["off"]:
    if value is False or value == BLINDING_OFF:
        return BLINDING_OFF
    if value is True or value == "on":
        return Blinding()
    if isinstance(value, Mapping | Blinding):
        return validate(value)
    raise ValueError(f"{value!r} says nothing of blinding; allowed: on, off, or a mapping of bits, fraction, missing")


def _plain(value: Blinding | str) -> Any:
    return value.model_dump() if isinstance(value, Blinding) else value


AnyBlinding = Annotated[Blinding | Literal["off"], OnOrOff()]
