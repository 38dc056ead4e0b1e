"""What parties say to each other. A protocol of yours adds kinds by subclassing ``Message``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from vflsim.learning.batches import Batch
from vflsim.learning.operations import Handle


@dataclass(slots=True, eq=False)
class Message:
    """A message: its round and batch are in the header, ``value`` is the tensor it carries (or nothing).

    ``sender`` and ``receiver`` are party numbers (0 = server), filled in by ``send``; ``sent`` and ``arrived`` are
    seconds since the start.
    """

    kind: ClassVar[str] = "message"
    batch: Batch | None = None
    value: Handle[Any] | None = None
    round: int = -1
    sender: int = field(default=-1, init=False)
    receiver: int = field(default=-1, init=False)
    sent: float = field(default=0.0, init=False)
    arrived: float = field(default=0.0, init=False)


@dataclass(slots=True, eq=False)
class Embedding(Message):
    """A client's embedding h_m of a batch, shape (batch, embedding)."""

    kind: ClassVar[str] = "embedding"


@dataclass(slots=True, eq=False)
class Gradient(Message):
    """The gradient ∂ℓ/∂h_m for the embedding received, same shape; empty: the round went on without it."""

    kind: ClassVar[str] = "gradient"


@dataclass(slots=True, eq=False)
class FirstFill(Message):
    """A client's embedding of every training row, shape (rows, embedding), for the server's table."""

    kind: ClassVar[str] = "first_fill"


@dataclass(slots=True, eq=False)
class Query(Message):
    """The server asks for a fresh embedding of ``batch`` (VAFL, bounded staleness)."""

    kind: ClassVar[str] = "query"


@dataclass(slots=True, eq=False)
class Answer(Message):
    """A client's answer to a query: the embedding of the batch asked for, shape (batch, embedding)."""

    kind: ClassVar[str] = "answer"


@dataclass(slots=True, eq=False)
class EvaluationRequest(Message):
    """The server asks for the embeddings of the evaluation rows."""

    kind: ClassVar[str] = "evaluate"


@dataclass(slots=True, eq=False)
class EvaluationAnswer(Message):
    """A client's embeddings of the evaluation rows, shape (rows, embedding)."""

    kind: ClassVar[str] = "evaluation"
