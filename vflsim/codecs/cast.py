"""Casts: floating-point numbers of fewer bits on the wire; the codecs ``float16`` and ``bfloat16``."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from vflsim.codecs.base import Codec
from vflsim.codecs.frame import Shape, from_raw, raw, raw_bytes


class Cast(Codec):
    """Each element becomes the nearest number of ``target``; finite numbers beyond its range become its greatest.

    Payload: the numbers as in memory, little-endian. Infinity and nan arrive as they are. The gradient passes straight
    through. Numbers of float64 become float32 first, as PyTorch casts them.
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


@final
class Float16(Cast):
    """IEEE half precision: 11 significant bits, up to 65,504; the least positive number is 6e-8.

    Example: ``{kind: float16}``
    """

    kind: Literal["float16"] = "float16"
    target: ClassVar[torch.dtype] = torch.float16


@final
class BFloat16(Cast):
    """Brain floating point: the range of float32 with 8 significant bits, an error of at most 1/256 of the number.

    Example: ``{kind: bfloat16}``
    """

    kind: Literal["bfloat16"] = "bfloat16"
    target: ClassVar[torch.dtype] = torch.bfloat16
