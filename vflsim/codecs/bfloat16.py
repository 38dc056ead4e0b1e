"""The codec ``bfloat16``."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch

from vflsim.codecs.cast import Cast


@final
class BFloat16(Cast):
    """Brain floating point: the range of float32 with 8 significant bits, an error of at most 1/256 of the number.

    Example: ``{kind: bfloat16}``
    """

    kind: Literal["bfloat16"] = "bfloat16"
    target: ClassVar[torch.dtype] = torch.bfloat16
