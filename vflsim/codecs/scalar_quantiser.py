"""The uniform scalar quantiser (Bennett 1948), with dither."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field
from torch import Tensor

from vflsim.codecs.lattice import LatticeQuantiser


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
