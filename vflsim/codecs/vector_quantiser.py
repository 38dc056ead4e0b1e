"""The lattice quantiser of C-VFL: pairs of elements become points of the hexagonal lattice A2, with dither."""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Annotated, ClassVar, Literal, NamedTuple, final

import torch
from pydantic import Field
from torch import Tensor

from vflsim.codecs.lattice import LatticeQuantiser

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
