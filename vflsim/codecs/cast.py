"""Casts: numbers of fewer bits on the wire; the codecs ``float16``, ``bfloat16`` and ``binarise``."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, final

from vflsim.codecs.base import Codec, Upward
from vflsim.codecs.frame import Shape, from_raw, pack_bits, packed_bytes, raw, raw_bytes, unpack_bits
from vflsim.errors import NonFiniteError
from vflsim.vocabulary.on_demand import Tensor, dtype as dtype_named, torch


class Cast(Codec):
    """Each element becomes the nearest number of ``target``; finite numbers beyond its range become its greatest.

    Payload: the numbers as in memory, little-endian. Infinity and nan arrive as they are. The gradient passes straight
    through. Numbers of float64 become float32 first, as PyTorch casts them.
    """

    target: ClassVar[str]
    """The dtype on the wire."""

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of all elements in ``target``."""
        return raw_bytes(shape, dtype_named(self.target))

    def pack(self, x: Tensor) -> bytes:
        """Return the memory of the cast tensor."""
        return raw(self._cast(x))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Restore the cast tensor, in ``dtype``."""
        return from_raw(payload, shape, dtype_named(self.target)).to(dtype)

    def through(self, x: Tensor) -> Tensor:
        """Cast there and back."""
        return self._cast(x).to(x.dtype)

    def saturated(self, x: Tensor) -> Tensor:
        """Return which finite elements the cast alone would make infinite."""
        return x.isfinite() & x.to(dtype_named(self.target)).isinf()

    def _cast(self, x: Tensor) -> Tensor:
        narrow = dtype_named(self.target)
        cast, most = x.to(narrow), torch.finfo(narrow).max
        return torch.where(self.saturated(x), cast.sign() * most, cast)


@final
class Float16(Cast):
    """IEEE half precision: 11 significant bits, up to 65,504; the least positive number is 6e-8.

    Example: ``{kind: float16}``
    """

    kind: Literal["float16"] = "float16"
    target: ClassVar[str] = "float16"


@final
class BFloat16(Cast):
    """Brain floating point: the range of float32 with 8 significant bits, an error of at most 1/256 of the number.

    Example: ``{kind: bfloat16}``
    """

    kind: Literal["bfloat16"] = "bfloat16"
    target: ClassVar[str] = "bfloat16"


@final
class Binarise(Upward):
    """Each element becomes its sign: 1 from the threshold 0 on, −1 below; 8 elements in a byte.

    The gradient passes straight through, also beyond ±1, where binarised networks often cut it off. One bit has no
    place for nan: sending it raises ``NonFiniteError``.

    Example: ``{kind: binarise, gradients: true}``
    """

    kind: Literal["binarise"] = "binarise"

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count one bit for each element, rounded up."""
        return packed_bytes(math.prod(shape), 1)

    def pack(self, x: Tensor) -> bytes:
        """Return the bits, 1 for elements of at least 0."""
        return pack_bits((self.through(x) > 0).long(), 1)

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Decode the bits: ±1."""
        return (2 * unpack_bits(payload, math.prod(shape), 1) - 1).to(dtype).reshape(shape)

    def through(self, x: Tensor) -> Tensor:
        """Return the signs."""
        if x.isnan().any():
            what = "a tensor with an element that is no number cannot be binarised"
            raise NonFiniteError(what)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)
