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

    def codes(self, x: Tensor, uniforms: Tensor | None) -> Tensor:
        """Return the level below ``x`` plus a random number; the nearest one without dither."""
        return (x + (0.5 if uniforms is None else uniforms)).floor().clamp(0, self.span).long()[:, 0]

    def points(self, codes: Tensor, uniforms: Tensor | None, like: Tensor) -> Tensor:
        """Return the levels."""
        levels = codes.to(like)[:, None]
        return levels if uniforms is None else levels - (uniforms - 0.5)
