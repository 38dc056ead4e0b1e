"""Compressors: quantisers on lattices with dither, the uniform one (Bennett 1948) and C-VFL's hexagonal one; top-k."""

from __future__ import annotations

import struct
from abc import abstractmethod
from functools import cache
from math import sqrt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from vflsim.codecs.base import Compressor
from vflsim.codecs.frame import Shape, from_raw, pack_bits, packed_bytes, raw, unpack_bits
from vflsim.errors import DataError
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count

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
        return _KEY.size * (self.dither != "none") + 2 * max(4, dtype.itemsize)  # of ``_working``


def _working(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@final
class ScalarQuantiser(LatticeQuantiser):
    """Each element becomes one of 2^bits equally spaced levels, from the tensor's least element to its greatest.

    The error is at most half a step, (greatest − least) / (2^bits − 1); with non-subtractive dither (stochastic
    rounding) less than a step.

    Example: ``{kind: scalar_quantiser, bits: 4, dither: none, error_feedback: true}``
    """

    kind: Literal["scalar_quantiser"] = "scalar_quantiser"
    bits: Annotated[int, Field(ge=1, le=16)]
    """Bits for each element."""

    @property
    def code_bits(self) -> int:
        """The bits of an element."""
        return self.bits

    @property
    def span(self) -> float:
        """The highest level."""
        return 2.0**self.bits - 1

    def dither_of(self, uniforms: Tensor) -> Tensor:
        """Return numbers in [−1/2, 1/2)."""
        return uniforms - 0.5

    def codes(self, x: Tensor, dither: Tensor | None) -> Tensor:
        """Return the level nearest to ``x`` plus the dither."""
        return ((x if dither is None else x + dither) + 0.5).floor().clamp(0, self.span).long()[:, 0]

    def points(self, codes: Tensor, dither: Tensor | None, like: Tensor) -> Tensor:
        """Return the levels."""
        levels = codes.to(like)[:, None]
        return levels if dither is None else levels - dither


HEIGHT = sqrt(3) / 2
"""The distance of two rows of a lattice whose points are 1 apart; odd rows are shifted by 1/2."""
REACH = 1 / 2, 1 / sqrt(3)
"""The extent of a cell from its point along a row, and across the rows."""


class Block(NamedTuple):
    """The points that have a code: ``rows`` of ``columns``. ``span`` is the side of the square of values."""

    rows: int
    columns: int
    span: float


@cache
def largest_block(points: int, dithered: bool) -> Block:
    """Return the block of at most so many points around the largest square whose cells it has, dither included."""
    margin = REACH if dithered else (0.0, 0.0)
    blocks = [
        Block(rows, columns := points // rows, min(columns - 0.5 - 2 * margin[0], (rows - 1) * HEIGHT - 2 * margin[1]))
        for rows in range(1, points + 1)
    ]
    return max(blocks, key=lambda block: block.span)


@final
class VectorQuantiser(LatticeQuantiser):
    """Each pair of elements becomes the nearest point of a hexagonal lattice, one of at most 4^bits.

    The lattice lies over the square of the tensor's range. A pair moves by at most step / √3, its elements together.

    Example: ``{kind: vector_quantiser, bits: 4, dither: non_subtractive, error_feedback: true}``
    """

    kind: Literal["vector_quantiser"] = "vector_quantiser"
    bits: Annotated[int, Field(ge=2, le=8)]
    """Bits for each element; a pair has twice as many."""
    together: ClassVar[int] = 2

    @property
    def code_bits(self) -> int:
        """The bits of a pair."""
        return 2 * self.bits

    @property
    def span(self) -> float:
        """The side of the square."""
        return self._block.span

    def dither_of(self, uniforms: Tensor) -> Tensor:
        """Return numbers uniform in the cell of the point 0: a parallelogram's, reduced to the cell."""
        spread = torch.stack([uniforms[:, 0] + 0.5 * uniforms[:, 1], uniforms[:, 1] * HEIGHT], 1)
        return spread - _position(*_nearest(spread))

    def codes(self, x: Tensor, dither: Tensor | None) -> Tensor:
        """Return row · columns + column of the nearest point."""
        block = self._block
        columns, rows = _nearest(x if dither is None else x + x.new_tensor(REACH) + dither)
        return (rows.clamp(0, block.rows - 1) * block.columns + columns.clamp(0, block.columns - 1)).long()

    def points(self, codes: Tensor, dither: Tensor | None, like: Tensor) -> Tensor:
        """Return the points, (codes, 2)."""
        columns = self._block.columns
        points = _position((codes % columns).to(like), (codes // columns).to(like))
        if self.dither != "none":
            points = points - like.new_tensor(REACH)
        return points if dither is None else points - dither

    @property
    def _block(self) -> Block:
        return largest_block(4**self.bits, self.dither != "none")


def _nearest(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return column and row, whole numbers, of the point nearest to each of ``x``, (n, 2)."""
    along, across = x.unbind(1)
    even = along.round(), (across / (2 * HEIGHT)).round()
    odd = (along - 0.5).round(), ((across - HEIGHT) / (2 * HEIGHT)).round()
    far = (along - even[0]).square() + (across - even[1] * (2 * HEIGHT)).square()
    in_odd = (along - 0.5 - odd[0]).square() + (across - HEIGHT - odd[1] * (2 * HEIGHT)).square() < far
    return torch.where(in_odd, odd[0], even[0]), torch.where(in_odd, 2 * odd[1] + 1, 2 * even[1])


def _position(columns: Tensor, rows: Tensor) -> Tensor:
    return torch.stack([columns + 0.5 * (rows % 2), rows * HEIGHT], 1)


@final
class TopK(Compressor):
    """Keeps the k elements of largest absolute value of each row, or of the tensor; the others arrive as 0.

    Of equal ones it keeps the first; nan counts as the largest. Payload: the values in full, in order of their places;
    then the places, in ⌈log₂ n⌉ bits each for rows of n elements.

    Examples: ``{kind: top_k, fraction: 0.1, per: tensor, error_feedback: true}``, ``{kind: top_k, count: 4}``
    """

    kind: Literal["top_k"] = "top_k"
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """k as a fraction of the elements: the nearest whole number, at least 1. Either this or ``count``."""
    count: Count | None = None
    """k; all elements where there are fewer."""
    per: Literal["row", "tensor"] = "row"
    """Whether k counts the elements of a ``row`` (a sample's embedding), or of the whole ``tensor``."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.fraction is None) == (self.count is None):
            raise ValueError("top_k needs either fraction or count; allowed: exactly one of them")
        return self

    @property
    def elementwise(self) -> bool:
        """False: which elements are kept depends on the others."""
        return False

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of values and places."""
        rows, length, k = self._sizes(shape)
        return rows * k * dtype.itemsize + packed_bytes(rows * k, _place_bits(length))

    def pack(self, x: Tensor) -> bytes:
        """Return values and places."""
        rows, length, k = self._sizes(tuple(x.shape))
        flat = x.reshape(rows, length)
        places = self._places(flat, k)
        return raw(flat.gather(1, places)) + pack_bits(places, _place_bits(length))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Put the values in their places, among zeros."""
        rows, length, k = self._sizes(shape)
        if len(payload) != self.payload_bytes(shape, dtype):
            what = f"{len(payload)} bytes of a sparse tensor of shape {shape}"
            raise DataError(what, allowed=f"{self.payload_bytes(shape, dtype)}")
        split = rows * k * dtype.itemsize
        values = from_raw(payload[:split], (rows, k), dtype)
        places = unpack_bits(payload[split:], rows * k, _place_bits(length)).reshape(rows, k)
        if rows * k and (int(places.max()) >= length or bool((places.diff(dim=1) <= 0).any())):
            raise DataError("places of a sparse tensor", allowed=f"increasing, below {length}")
        return torch.zeros(rows, length, dtype=dtype).scatter_(1, places, values).reshape(shape)

    def through(self, x: Tensor) -> Tensor:
        """Keep the largest elements, without packing bits."""
        rows, length, k = self._sizes(tuple(x.shape))
        flat = x.reshape(rows, length)
        places = self._places(flat, k)
        return torch.zeros_like(flat).scatter_(1, places, flat.gather(1, places)).reshape(x.shape)

    def _sizes(self, shape: Shape) -> tuple[int, int, int]:
        elements = int(np.prod(shape))
        length = shape[-1] if self.per == "row" and shape else elements
        count = self.count if self.fraction is None else max(1, round(self.fraction * length))
        return (elements // length if length else 0), length, min(count or 0, length)

    def _places(self, flat: Tensor, k: int) -> Tensor:
        order = flat.abs().sort(dim=1, descending=True, stable=True).indices
        return order[:, :k].sort(dim=1).values


def _place_bits(length: int) -> int:
    return max(length - 1, 0).bit_length()
