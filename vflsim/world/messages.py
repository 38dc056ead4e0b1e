"""The messages between parties, and the order of inputs. A protocol of one's own subclasses ``Message``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflsim.codecs.frame import ONLY
from vflsim.errors import ProtocolError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle
from vflsim.vocabulary.on_demand import dtype, loaded, torch


@dataclass(slots=True, eq=False)
class Message:
    """A message with none, one or several tensors: one draw of latency, one number of bytes.

    ``value`` is the tensor it carries, if it is a single one. Several are named, and read as ``message["duals"]``:
    ``Update(tensors={"duals": λ, "residuals": s})``. Round and batch are in the header. ``clients`` are the
    clients it is about. ``sender`` and ``receiver`` are party numbers (0 = server), filled in by
    ``send``; ``sent`` and ``arrived`` are seconds since the start.

    Example::

        @dataclass(slots=True, eq=False)
        class Update(Message):
            kind: ClassVar[str] = "update"


        duals = Handle((32, 10))
        Update(tensors={"duals": duals}, round=3)["duals"] is duals  # True
    """

    kind: ClassVar[str] = "message"
    embedding: ClassVar[bool] = False
    """Whether its upload delay is one of the draws that embeddings have in common under every protocol."""
    ordered: ClassVar[bool] = False
    """Whether a party sends one a round, and rounds ascend: in a live run others are refused."""
    awaited: ClassVar[bool] = False
    """Whether the server waits for it when it comes: in a live run one of another round is refused."""
    rowless: ClassVar[frozenset[str]] = frozenset()
    """The tensors that are not about training rows, such as weights, by name."""
    batch: Batch | None = None
    value: Handle[Any] | None = None
    round: int = -1
    clients: tuple[int, ...] = ()
    tensors: Mapping[str, Handle[Any]] = field(default_factory=dict, kw_only=True)
    sender: int = field(default=-1, init=False)
    receiver: int = field(default=-1, init=False)
    sent: float = field(default=0.0, init=False)
    arrived: float = field(default=0.0, init=False)

    def __getitem__(self, name: str) -> Handle[Any]:
        """The tensor called ``name``. Raises ``ProtocolError`` with the names there are."""
        try:
            return self.tensors[name]
        except KeyError:
            have = ", ".join(self.tensors) or "none: its one tensor is message.value"
            raise ProtocolError(f"a {self.kind!r} message has no tensor {name!r}", allowed=have) from None

    @property
    def carried(self) -> Mapping[str, Handle[Any]]:
        """All tensors by name; the one that is ``value`` is called ``""``."""
        return self.tensors if self.value is None else {ONLY: self.value, **self.tensors}

    def rows_of(self, name: str, batches: BatchSequence) -> NDArray[np.int64] | None:
        """Return the training rows that the rows of a tensor are about, for views; None if they are about none.

        (rows,), or (rows, n) where each mixes n training rows (−1: padding). Unless it is overridden: those of the
        batch or, in a message without one, of that batch of ``batches`` which has the number of the message's round.
        """
        if name in self.rowless or (self.batch is None and self.round < 0):
            return None
        batch, shape = self.batch or batches.batch(self.round), self.carried[name].shape
        return batch.ids if shape[:1] == (len(batch),) else None


@dataclass(slots=True, eq=False)
class Embedding(Message):
    """A client's embedding h_m of a batch, shape (batch, embedding).

    Example::

        async def upload(node: ClientNode, k: int) -> None:
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
    """

    kind: ClassVar[str] = "embedding"
    ordered: ClassVar[bool] = True
    embedding: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class Gradient(Message):
    """The gradient ∂ℓ/∂h_m for the embedding received, same shape; empty: the round went on without it.

    Example::

        async def reply(node: ServerNode, k: int) -> None:
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            for message in embeddings:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=k))
    """

    kind: ClassVar[str] = "gradient"
    ordered: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class FirstFill(Message):
    """A client's embedding of every training row, shape (rows, embedding), for the server's table."""

    kind: ClassVar[str] = "first_fill"

    def rows_of(self, name: str, batches: BatchSequence) -> NDArray[np.int64]:
        """Return all training rows."""
        return np.arange(self.carried[name].shape[0])


@dataclass(slots=True, eq=False)
class Query(Message):
    """The server asks for a fresh embedding of ``batch`` (VAFL, bounded staleness)."""

    kind: ClassVar[str] = "query"


@dataclass(slots=True, eq=False)
class Answer(Message):
    """A client's answer to a query: the embedding of the batch asked for, shape (batch, embedding)."""

    kind: ClassVar[str] = "answer"
    awaited: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class Naming(Message):
    """A message whose content is ``clients``: eight bytes each."""

    kind: ClassVar[str] = "naming"
    rowless: ClassVar[frozenset[str]] = frozenset({ONLY})

    def __post_init__(self) -> None:
        self.value = Handle((len(self.clients),), dtype("int64"))
        if loaded():
            self.value.set(torch.tensor(self.clients))
        else:  # timing needs the size alone
            self.value.defer(lambda: torch.tensor(self.clients))


@dataclass(slots=True, eq=False)
class EvaluationRequest(Message):
    """The server asks for the embeddings of the evaluation rows.

    Example::

        async def ask(node: ServerNode, number: int) -> None:
            for client in node.clients:
                await node.send(client, EvaluationRequest(round=number))
    """

    kind: ClassVar[str] = "evaluate"
    rowless: ClassVar[frozenset[str]] = frozenset({ONLY})


@dataclass(slots=True, eq=False)
class EvaluationAnswer(Message):
    """A client's embeddings of the evaluation rows, shape (rows, embedding).

    Example::

        async def answer(node: ClientNode, number: int) -> None:
            await node.recv("evaluate", round=number)
            h = await node.compute(node.learner.embed_split("test"))
            await node.upload("server", EvaluationAnswer(value=h, round=number))
    """

    kind: ClassVar[str] = "evaluation"
    awaited: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({ONLY})


# --- order of inputs --------------------------------------------------------------------------------------------------


_OUTSIDE_TIME = (EvaluationAnswer, EvaluationRequest)


class Item(NamedTuple):
    """One input: a message of kind ``what`` from ``sender``, of a round; or the end of an own activity (sender −1)."""

    what: str
    sender: int = -1
    round: int = -1

    def __str__(self) -> str:
        if self.sender < 0:
            return f"the end of {self.what!r}"
        return f"a {self.what!r} message of round {self.round} from party {self.sender}"


@dataclass(slots=True)
class InputOrder:
    """The inputs of one party, in the order in which it met them. A party's weights are a function of it.

    Messages of evaluations are left out: they change nothing.

    Example::

        order = InputOrder()
        order.arrived(message)
        order.ended("compute.embed")
    """

    items: list[Item] = field(default_factory=list)

    def arrived(self, message: Message) -> None:
        """Note a message that has been handed to the party."""
        if counts(message):
            self.items.append(item_of(message))

    def ended(self, activity: str) -> None:
        """Note an activity of the party's own that has ended, by its kind in the table of events."""
        self.items.append(Item(activity))


def item_of(message: Message) -> Item:
    """Return the input that a message is."""
    return Item(message.kind, message.sender, message.round)


def counts(message: Message) -> bool:
    """Return whether a message is an input that changes something: no message of an evaluation is."""
    return not isinstance(message, _OUTSIDE_TIME)
