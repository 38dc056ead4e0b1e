"""The base class of casts: floating-point numbers of fewer bits on the wire."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from vflsim.codecs.base import Codec
from vflsim.codecs.frame import Shape, from_raw, raw, raw_bytes


class Cast(Codec):
    """Each element becomes the nearest number of ``target``; finite numbers beyond its range become its greatest.

    Payload: the numbers as in memory, little-endian. Infinity and nan arrive as they are. The gradient passes straight
    through.
    """

    target: ClassVar[torch.dtype]
    """The dtype on the wire."""

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of all elements in ``target``."""
        return raw_bytes(shape, self.target)

    def pack(self, x: Tensor) -> bytes:
        """Return the memory of the cast tensor."""
        return raw(self._cast(x))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Restore the cast tensor, in ``dtype``."""
        return from_raw(payload, shape, self.target).to(dtype)

    def through(self, x: Tensor) -> Tensor:
        """Cast there and back."""
        return self._cast(x).to(x.dtype)

    def saturated(self, x: Tensor) -> Tensor:
        """Return which finite elements the cast alone would make infinite."""
        return x.isfinite() & x.to(self.target).isinf()

    def _cast(self, x: Tensor) -> Tensor:
        cast, most = x.to(self.target), torch.finfo(self.target).max
        return torch.where(self.saturated(x), cast.sign() * most, cast)
