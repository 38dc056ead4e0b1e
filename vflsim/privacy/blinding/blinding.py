"""What a scenario says of blinding."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from vflsim.vocabulary.base import Part, Shorthand
from vflsim.vocabulary.quantities import Index

BLINDING_OFF: Literal["off"] = "off"
HEADROOM_BITS = 2
"""Leading bits that a sum of all clients never uses. A sum in which a mask is left over uses them: the guard."""


class Blinding(Part):
    """Clients upload fixed-point embeddings under masks that cancel in the sum over all of them (EASTER Eq. 4–6)."""

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
            raise ValueError(
                f"fraction: {self.fraction} of {self.bits} bits leave embeddings of {clients} clients magnitudes up to "
                f"{largest:g}; allowed: 0 to {most}, for magnitudes of at least 1"
            )
        return largest

    def promise(self, clients: int) -> str:
        """Describe the protection and the range before any run, in words."""
        return (
            f"embeddings blinded: the server sees sums over {clients} clients; {self.bits} bits, {self.fraction} after "
            f"the point, magnitudes up to {self.largest(clients):g}"
        )


def _expanded(value: Any) -> Any:
    """``on`` is short for ``{}``: the defaults. YAML 1.1's booleans mean the same."""
    if isinstance(value, bool):
        return {} if value else BLINDING_OFF
    return {} if value == "on" else value


BlindingChoice: TypeAlias = Blinding | Literal["off"]
AnyBlinding = Annotated[
    Annotated[Blinding | Literal["off"], Field(union_mode="left_to_right")],
    Shorthand(_expanded, {"enum": ["on", "off", True, False]}),
]
