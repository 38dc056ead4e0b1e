"""The message of EF-VFL's clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vflsim.world.messages import Message


@dataclass(slots=True, eq=False)
class Difference(Message):
    """h_m − ĥ_m of a batch, (batch, embedding): the difference of the client's embedding and its surrogate."""

    kind: ClassVar[str] = "difference"
    ordered: ClassVar[bool] = True
    embedding: ClassVar[bool] = True
