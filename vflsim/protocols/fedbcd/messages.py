"""The messages of FedBCD beside embeddings and gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from vflsim.learning.execution.operations import Handle
from vflsim.streams import party_name
from vflsim.world.messages import Message

MODEL = "model"
"""The name of the server's weights in ``SharedValues``, a vector."""


@dataclass(slots=True, eq=False)
class SharedValues(Message):
    """The server's weights, and the parties' embeddings of a batch, by name: all values that a client's step needs."""

    kind: ClassVar[str] = "shared_values"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({MODEL})


def shared_values_of(own: Mapping[str, Handle[Any]], embeddings: Iterable[Message], round: int) -> SharedValues:
    """Return the message with the server's ``own`` values and these embeddings, in client order."""
    ordered = sorted(embeddings, key=lambda each: each.sender)
    values = {party_name(each.sender): each.value for each in ordered if each.value is not None}
    return SharedValues(round=round, tensors={**own, **values})


@dataclass(slots=True, eq=False)
class RoundOver(Message):
    """The server announces that its turn is over and the next batch begins. The message carries no tensor."""

    kind: ClassVar[str] = "round_over"
    ordered: ClassVar[bool] = True
