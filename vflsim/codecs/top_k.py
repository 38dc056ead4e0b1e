"""Top-k sparsification: the elements of largest absolute value, with their places."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator

from vflsim.codecs.base import Compressor
from vflsim.codecs.frame import Shape, from_raw, pack_bits, packed_bytes, raw, unpack_bits
from vflsim.errors import DataError
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count


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
        """Return the number of rows, their length, and k."""
        elements = int(np.prod(shape))
        length = shape[-1] if self.per == "row" and shape else elements
        count = self.count if self.fraction is None else max(1, round(self.fraction * length))
        return (elements // length if length else 0), length, min(count or 0, length)

    def _places(self, flat: Tensor, k: int) -> Tensor:
        order = flat.abs().sort(dim=1, descending=True, stable=True).indices
        return order[:, :k].sort(dim=1).values


def _place_bits(length: int) -> int:
    return max(length - 1, 0).bit_length()
