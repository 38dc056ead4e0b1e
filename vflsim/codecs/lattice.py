"""The base class of lattice quantisers: a tensor's range, whole numbers of a few bits, and dither."""

from __future__ import annotations

import struct
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from vflsim.codecs.bits import pack_bits, packed_bytes, unpack_bits
from vflsim.codecs.compressor import Compressor
from vflsim.codecs.frame import Shape, from_raw, raw
from vflsim.errors import DataError

_KEY = struct.Struct("<Q")


class LatticeQuantiser(Compressor):
    """Codes points of a lattice over the range of each tensor, from its least to its greatest element.

    Payload: with dither 8 bytes for its key; the least element and the lattice's step, in the tensor's dtype but at
    least float32; the codes, packed. Unbiased with dither, but for rounding in the dtype. A tensor without a finite
    range arrives as nan.
    """

    dither: Literal["subtractive", "non_subtractive", "none"] = "subtractive"
    """Random numbers added before rounding, uniform in a cell of the lattice; ``subtractive``: taken off afterwards."""
    together: ClassVar[int] = 1
    """The elements that one code stands for: the dimension of the lattice."""
    _key: int = PrivateAttr(0)

    @property
    def elementwise(self) -> bool:
        """False, because the range is that of the whole tensor."""
        return False

    def keyed(self, key: int) -> Self:
        """Return this quantiser with the dither of ``key``."""
        if self.dither == "none":
            return self
        copy = self.model_copy()
        copy._key = key
        return copy

    # --- the lattice, in units of its step ------------------------------------------------------------------------

    @property
    @abstractmethod
    def code_bits(self) -> int:
        """The bits of a code."""

    @property
    @abstractmethod
    def span(self) -> float:
        """The widest range, in steps, that the codes cover."""

    @abstractmethod
    def dither_of(self, uniforms: Tensor) -> Tensor:
        """Return the dither, uniform in a cell, from ``uniforms`` in [0, 1): (codes, together) both."""

    @abstractmethod
    def codes(self, x: Tensor, dither: Tensor | None) -> Tensor:
        """Return a code, int64, for each row of ``x`` in [0, span], (codes, together)."""

    @abstractmethod
    def points(self, codes: Tensor, dither: Tensor | None, like: Tensor) -> Tensor:
        """Return the lattice's points, of the dtype of ``like``, less a ``dither`` that is to be taken off."""

    # --- one tensor -----------------------------------------------------------------------------------------------

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of the dither's key, of range and step, and of the codes."""
        count, _ = self._counts(shape)
        return self._head(dtype) + packed_bytes(count, self.code_bits) if count else 0

    def pack(self, x: Tensor) -> bytes:
        """Return key, least element, step, and codes."""
        if x.numel() == 0:
            return b""
        scale, codes, _ = self._encoded(x)
        key = b"" if self.dither == "none" else _KEY.pack(self._key)
        return b"".join([key, raw(scale), pack_bits(codes, self.code_bits)])

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Decode the codes."""
        if len(payload) != self.payload_bytes(shape, dtype):
            what = f"{len(payload)} bytes of a quantised tensor of shape {shape}"
            raise DataError(what, allowed=f"{self.payload_bytes(shape, dtype)}")
        count, _ = self._counts(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        head = self._head(dtype)
        scale = from_raw(payload[_KEY.size * (self.dither != "none") : head], (2,), _working(dtype))
        codes = unpack_bits(payload[head:], count, self.code_bits)
        key = 0 if self.dither == "none" else _KEY.unpack_from(payload)[0]
        return self._decoded(scale, codes, self._dither(key, count, scale), shape).to(dtype)

    def through(self, x: Tensor) -> Tensor:
        """Quantise and decode, without packing bits."""
        return self._decoded(*self._encoded(x), tuple(x.shape)).to(x.dtype) if x.numel() else x

    # --- pieces ---------------------------------------------------------------------------------------------------

    def _encoded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        count, spare = self._counts(tuple(x.shape))
        x = x.to(_working(x.dtype))
        least, most = x.aminmax()
        step = (most - least) / self.span
        scale = torch.where(torch.isfinite(step), torch.stack([least, step]), torch.nan)
        flat = torch.where(step == 0, 0.0, (x.reshape(-1) - least) / step)  # a constant has no step
        pairs = torch.cat([flat, flat.new_zeros(spare)]).nan_to_num(0.0, 0.0, 0.0).reshape(count, self.together)
        dither = self._dither(self._key, count, x)
        return scale, self.codes(pairs, dither), dither

    def _decoded(self, scale: Tensor, codes: Tensor, dither: Tensor | None, shape: Shape) -> Tensor:
        points = self.points(codes, dither if self.dither == "subtractive" else None, scale)
        return (scale[0] + scale[1] * points.reshape(-1)[: int(np.prod(shape))]).reshape(shape)

    def _dither(self, key: int, count: int, like: Tensor) -> Tensor | None:
        """Return the dither of a tensor with this key, (codes, together)."""
        if self.dither == "none":
            return None
        # The raw words are covered by numpy's compatibility promise, the methods of Generator are not.
        words = np.random.Philox(key=key).random_raw(count * self.together)
        bits = 53 if like.dtype == torch.float64 else 24  # exact in the dtype
        numbers: Any = (words >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits
        return self.dither_of(torch.from_numpy(numbers).to(like).reshape(count, self.together))

    def _counts(self, shape: Shape) -> tuple[int, int]:
        """Count the codes, and the elements that the last one has to spare."""
        elements = int(np.prod(shape))
        count = -(-elements // self.together)
        return count, count * self.together - elements

    def _head(self, dtype: torch.dtype) -> int:
        return _KEY.size * (self.dither != "none") + 2 * _working(dtype).itemsize


def _working(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
