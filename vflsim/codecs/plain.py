"""The plain codec: tensors as in memory."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch

from vflsim.codecs.base import Codec
from vflsim.codecs.frame import Shape, from_raw, raw, raw_bytes


@final
class Plain(Codec):
    """Header of 60 bytes, 8 bytes per sample id (only with ``batches: own``), then the tensors as in memory.

    Several tensors, or one with a name, add 34 bytes each. Little-endian, no compression.

    Example: ``{kind: plain}``
    """

    kind: Literal["plain"] = "plain"
    lossless: ClassVar[bool] = True

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of all elements at full width."""
        return raw_bytes(shape, dtype)

    def pack(self, x: torch.Tensor) -> bytes:
        """Return the tensor's memory."""
        return raw(x)

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Restore the tensor bit for bit."""
        return from_raw(payload, shape, dtype)
