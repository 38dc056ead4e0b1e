"""Binarised embeddings, those of B-SL (Pham et al. 2022)."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import Tensor

from vflsim.codecs.base import Upward
from vflsim.codecs.frame import Shape, pack_bits, packed_bytes, unpack_bits
from vflsim.errors import NonFiniteError


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
