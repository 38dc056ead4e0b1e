"""Codecs: the bytes on the wire, the decoded tensors, and the sizes of messages."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field

from vflsim.codecs.base import Codec, Plain
from vflsim.codecs.compressors import ScalarQuantiser, TopK, VectorQuantiser
from vflsim.codecs.encryption import Ckks, Paillier
from vflsim.codecs.frame import Shape
from vflsim.codecs.round import BFloat16, Binarise, Float16, Round
from vflsim.vocabulary.base import Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.on_demand import torch

OneKind: TypeAlias = (
    Plain | ScalarQuantiser | VectorQuantiser | TopK | Round | Binarise | Float16 | BFloat16 | Paillier | Ckks
)
OneCodec = Annotated[
    Annotated[OneKind, Field(discriminator="kind"), OrModule(Codec)], Shorthand(kind_from_text, {"type": "string"})
]


@final
class ByDirection(Codec):
    """Messages to the server go through ``up``, all others through ``down``.

    Example: ``{kind: by_direction, up: {kind: top_k, fraction: 0.1}, down: float16}``
    """

    kind: Literal["by_direction"] = "by_direction"
    up: OneCodec = Plain()
    """For messages to the server: embeddings."""
    down: OneCodec = Plain()
    """For messages to clients: gradients and the server's model. Others' embeddings are passed on as they came."""

    def towards(self, receiver: int) -> Codec:
        """Return ``up`` for the server, ``down`` for a client."""
        return self.down if receiver else self.up

    @property
    def remembers(self) -> bool:
        """Whether either codec keeps a memory."""
        return self.up.remembers or self.down.remembers

    # Without a receiver a message goes up.

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of a tensor on its way up."""
        return self.up.payload_bytes(shape, dtype)

    def pack(self, x: torch.Tensor) -> bytes:
        """Encode a tensor on its way up."""
        return self.up.pack(x)

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Decode a tensor on its way up."""
        return self.up.unpack(payload, shape, dtype)


CodecKind: TypeAlias = OneKind | ByDirection
CODECS: tuple[type[Codec], ...] = get_args(CodecKind)
AnyCodec = Annotated[CodecKind, Field(discriminator="kind"), OrModule(Codec)]

__all__ = ["CODECS", "AnyCodec", "Codec", "Plain"]
