"""Evaluation by messages: the server asks, every client embeds the rows, and the server scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from vflsim.errors import ProtocolError
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.client import Split
from vflsim.streams import party_name
from vflsim.world.messages import EvaluationAnswer, EvaluationRequest
from vflsim.world.node import ClientNode, Node, ServerNode

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
    return {f"{name}.{party_name(party)}": value for party, own in scores.items() for name, value in own.items()}


def _method(node: Node[Any], name: str, call: str, hook: str) -> Any:
    """Return a method of the party's learner. Raises ``ProtocolError`` if it has none."""
    method = getattr(node.learner, name, None)
    if not callable(method):
        raise ProtocolError(
            f"the learner {type(node.learner).__name__} of {party_name(node.party)} has no method {call}",
            party_name(node.party),
            "embed_split(split) at clients, evaluate(split, answers) at the server: operations of kind evaluate",
            f"add it to the learner, or derive the protocol from OwnEvaluation and override {hook}, which calls it",
        )
    return method


def _tag(number: int, place: int) -> int:
    return 2 * number + place
