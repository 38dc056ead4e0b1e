"""The codec ``float16``."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch

from vflsim.codecs.cast import Cast


@final
class Float16(Cast):
    """IEEE half precision: 11 significant bits, up to 65,504; the least positive number is 6e-8.

    Example: ``{kind: float16}``
    """

    kind: Literal["float16"] = "float16"
    target: ClassVar[torch.dtype] = torch.float16
