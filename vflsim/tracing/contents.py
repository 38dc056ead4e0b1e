"""The contents of messages by kind. ``vflsim verify`` computes the bytes of messages from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY, Shape, Spec
from vflsim.setting import Setting
from vflsim.streams import SERVER


@dataclass(frozen=True, slots=True)
class Content:
    """The tensors of a message by name, and its number of sample ``ids``.

    ``passed_on`` names the tensors that the server forwards without re-encoding.
    """

    tensors: Mapping[str, Spec] = field(default_factory=dict)
    ids: int = 0
    passed_on: tuple[str, ...] = ()

    def nbytes(self, codec: Codec, receiver: int) -> int:
        """Count the bytes of the message on its way to ``receiver``."""
        passed_on = dict.fromkeys(self.passed_on, codec.towards(SERVER))
        return codec.towards(receiver).size_of(self.tensors, self.ids, passed_on)


Contents: TypeAlias = Mapping[str, Sequence[Content]]
"""By message kind, the alternative contents of such a message."""
EMPTY = Content()


def single(shape: Shape, dtype: torch.dtype, ids: int = 0) -> Content:
    """Return the content of a message with one tensor."""
    return Content({ONLY: Spec(shape, dtype)}, ids)


def named(shapes: Mapping[str, Shape], dtype: torch.dtype, ids: int = 0, passed_on: tuple[str, ...] = ()) -> Content:
    """Return the content of a message with tensors of one dtype."""
    return Content({name: Spec(shape, dtype) for name, shape in shapes.items()}, ids, passed_on)


def ids_of(setting: Setting, rows: int) -> int:
    """Return the number of sample ids in a message about a batch of this many rows: 0 for a shared batch."""
    return rows if setting.training.batches == "own" else 0
