"""Inference under a deadline: the server asks about rows, clients reply, and it predicts from what has arrived."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from vflsim.errors import ProtocolError
from vflsim.learning.execution.operations import Handle, Operation, nothing
from vflsim.learning.learners.client import Split
from vflsim.setting import Learners, Setting, split_prediction
from vflsim.streams import party_name
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import EvaluationAnswer, EvaluationRequest, Message
from vflsim.world.node import ClientNode, Node, ServerNode


@dataclass(slots=True, eq=False)
class Ask(Message):
    """The server asks for the embeddings of the rows of query number ``round``."""

    kind: ClassVar[str] = "ask"


@dataclass(slots=True, eq=False)
class Reply(Message):
    """A client's reply to a query, (rows, embedding). Its upload delay is drawn like that of any embedding.

    Without a value it says that there will be no embedding.

    Example::

        async def reply(self, node: ClientNode, query: InferenceQuery) -> None:
            h = await node.compute(query.embedding(node.learner))
            await node.upload("server", Reply(value=h, round=query.number))
    """

    kind: ClassVar[str] = "reply"
    embedding: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class InferenceQuery:
    """InferenceQuery ``number`` is about ``rows`` rows; a sampled compute time is that of ``batch`` rows.

    ``dtype`` is that of an uploaded embedding: blinded ones are integers.

    Example::

        InferenceQuery(number=0, rows=16, batch=64, dtype=torch.float32).rows  # 16
    """

    number: int
    rows: int
    batch: int
    dtype: torch.dtype

    def embedding(self, learner: Any) -> Operation[Handle[Tensor]]:
        """Return the operation that embeds the rows, as shapes and costs: (rows, width).

        Its FLOPs are the rows' share of those of the whole test split.
        """
        whole = learner.embed_split("test")
        every, width = whole.result.shape
        h: Handle[Tensor] = Handle((self.rows, width), self.dtype)
        return Operation(
            "embed", learner.party, nothing, h, rows=self.rows, units=self.rows / self.batch, inputs=(), promises=(h,),
            cost=lambda *_: whole.flops() * self.rows / every,
        )  # fmt: skip


class Answering:
    """A protocol that says itself how it answers queries under ``evaluate.deadline``.

    Other protocols answer by this class, too, unless they predict or evaluate in a way of their own.

    Example, whose heads predict from the mean of any embeddings::

        class Subsets(Answering, Synchronous):
            kind: Literal["subsets"] = "subsets"

            def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
                came = [h for h in embeddings.values() if h is not None]
                return learners.server.top(torch.stack(came).mean(0))
    """

    needs_everybody: ClassVar[str] = ""
    """Why no client may crash during a query. Empty if clients may."""

    async def reply(self, node: Node, query: InferenceQuery) -> None:
        """Client: embed the rows of the query, and upload a ``Reply``. Only times count: nothing is computed."""
        h = await node.compute(query.embedding(node.learner))
        await node.upload("server", Reply(value=h, round=query.number))

    def known(self, setting: Setting, came: Collection[int]) -> Collection[int]:
        """Return the clients whose embeddings count, once the replies of the clients ``came`` have arrived.

        Those that came; with blinding all or none, since masks cancel in the sum of all alone.
        """
        return came if setting.blinding is None or len(came) == len(setting.clients) else ()

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        """Predict from embeddings by party, None where one is missing, in evaluation mode: (rows, outputs).

        They are in party order, that of an active server (party 0) first, and at least one is there.
        """
        answer: Tensor = self._prediction(learners).predict([*embeddings.values()])
        return answer

    def own(self, learners: Learners[Any, Any]) -> Tensor | None:
        """Embed the server's own features of all test rows, in evaluation mode: (rows, width); None if it has none."""
        try:
            own = self._prediction(learners).own
        except ValueError:  # it says itself how it answers
            return None
        return None if own is None else own("test")

    def _prediction(self, learners: Learners[Any, Any]) -> Any:
        return getattr(self, "prediction", split_prediction)(learners)


# --- evaluation -------------------------------------------------------------------------------------------------------


Scores: TypeAlias = dict[str, float]
"""The loss and the metrics of a split, by name. Example: ``{"loss": 0.4, "accuracy.client-2": 0.8}``."""


async def answer_evaluation(node: ClientNode, splits: Sequence[Split], number: int) -> None:
    """Client: when asked, embed every row of each split. On a free node this takes no time."""
    embed_split = _method(node, "embed_split", "embed_split(split)", "answer_evaluation")
    await node.recv("evaluate", round=number)
    for place, split in enumerate(splits):
        h = await node.compute(embed_split(split))
        await node.upload("server", EvaluationAnswer(value=h, round=_tag(number, place)))


async def evaluate(node: ServerNode, splits: Sequence[Split], number: int) -> dict[Split, Handle[Scores]]:
    """Server: return loss and metrics of each split as deferred handles. ``number`` identifies the evaluation."""
    scored = _method(node, "evaluate", "evaluate(split, answers)", "evaluate")
    for client in node.clients:
        await node.send(client, EvaluationRequest(round=number))
    scores: dict[Split, Handle[Scores]] = {}
    for place, split in enumerate(splits):
        answers = await node.gather("evaluation", senders=node.clients, round=_tag(number, place))
        scores[split] = await node.compute(scored(split, answers))
    return scores


def of_parties(scores: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Name the metrics of parties: ``accuracy.client-2``."""
    return {f"{name}.{party_name(party)}": value for party, each in scores.items() for name, value in each.items()}


def _method(node: Node[Any], name: str, call: str, hook: str) -> Any:
    """Return a method of the party's learner. Raises ``ProtocolError`` if it has none."""
    method = getattr(node.learner, name, None)
    if not callable(method):
        raise ProtocolError(
            f"the learner {type(node.learner).__name__} of {party_name(node.party)} has no method {call}",
            party_name(node.party),
            "embed_split(split) at clients, evaluate(split, answers) at the server: operations of kind evaluate",
            f"add it to the learner, or override {hook} of the protocol, which calls it",
        )
    return method


def _tag(number: int, place: int) -> int:
    return 2 * number + place
