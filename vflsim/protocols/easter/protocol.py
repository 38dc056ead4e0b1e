"""EASTER: parties with nets of their own train on a global embedding; one run gives C models (Alg. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Literal

from vflsim.errors import DisconnectedError
from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.privacy.blinding import Blinding
from vflsim.protocols.answering import Answering, Scores
from vflsim.protocols.base import CheckContext, Protocol, Traits, replace
from vflsim.protocols.blinded import agree_on_keys, of_all, relay_keys
from vflsim.protocols.easter.learning import PREDICTORS, ActiveParty, EasterParty
from vflsim.protocols.easter.stack import stack_parties
from vflsim.setting import ClientsMade, Learners, ServerPrediction, Setting, prediction_of
from vflsim.vocabulary.on_demand import Tensor
from vflsim.world.messages import Embedding, EvaluationAnswer, EvaluationRequest, Gradient, Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class GlobalEmbedding(Message):
    """E, the mean of all parties' embeddings of a batch, shape (batch, embedding)."""

    kind: ClassVar[str] = "global_embedding"
    ordered: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class Prediction(Message):
    """A passive party's prediction R_k = p(θ_k, E) for a batch, shape (batch, outputs)."""

    kind: ClassVar[str] = "prediction"
    ordered: ClassVar[bool] = True


class Easter(Answering, Protocol):
    """Round t, trip 1: embeddings of B(t) up, their mean E down. Trip 2: predictions up, their gradients down.

    Every party, the active one included, has an embedding net and a prediction net, and steps both.

    Example: ``{kind: easter}``
    """

    kind: Literal["easter"] = "easter"
    traits: ClassVar[Traits] = replace(
        PREDICTORS,
        awaited_replies=("prediction",),
        only_embeddings_up=False,
        blindable=True,
        default_blinding=Blinding(),
    )

    async def server(self, node: Node[ActiveParty]) -> None:
        """Active party: join all embeddings (lines 3–6), compute every prediction's loss (lines 8–12), and step."""
        await relay_keys(node)
        for t in node.rounds():
            batch = node.batch(t)
            embedding = await node.compute(node.learner.embed(batch))
            if not (embeddings := await of_all(node, t)):
                continue
            joined = await node.compute(node.learner.join(embedding, embeddings))
            mean = GlobalEmbedding(batch, joined, round=t)
            trips = (self.second_trip(node, client, mean) for client in node.clients)
            mine, *theirs = await node.together(node.compute(node.learner.predict(mean)), *trips)
            gradients = await node.compute(node.learner.server_step(batch, mine, theirs))
            for client in node.clients:
                await node.send(client, Gradient(value=gradients[client], round=t))

    async def second_trip(self, node: Node[ActiveParty], client: int, mean: GlobalEmbedding) -> Any:
        """Active party: send E, and receive the prediction. Send E again to a client that crashes before it answers."""
        while True:
            await node.send(client, mean)
            try:
                return await node.recv("prediction", round=mean.round, sender=client)
            except DisconnectedError:
                await node.back(client)

    async def client(self, node: Node[EasterParty]) -> None:
        """Passive party: send [E_k]; predict from E and send R_k; step both nets along the gradient (line 14)."""
        await agree_on_keys(node)
        for t in node.rounds(over="gradient"):
            batch = node.batch(t)
            async with node.until("gradient", round=t):  # a client that crashed after its prediction is not asked again
                await node.activated()
                h = await node.compute(node.learner.embed(batch))
                await node.upload("server", Embedding(batch, h, round=t))
                mean = await node.recv("global_embedding", round=t)
                prediction = await node.compute(node.learner.predict(mean))
                await node.upload("server", Prediction(batch, prediction, round=t))
            gradient = await node.recv("gradient", round=t)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))

    # --- evaluation: the same two trips, without losses -------------------------------------------------------------

    async def evaluate(
        self, node: Node[ActiveParty], splits: Sequence[Split], number: int
    ) -> dict[Split, Handle[Scores]]:
        """Return every party's loss and metrics, and their means over the parties."""
        scores = {}
        for split, trip in zip(splits, count(4 * number, 2), strict=False):
            embedding = await node.compute(node.learner.embed_split(split))
            mean = await node.compute(node.learner.join(embedding, await self.asked(node, trip), "evaluate"))
            predictions = await self.asked(node, trip + 1, mean)
            scores[split] = await node.compute(node.learner.evaluate(split, mean, predictions))
        return scores

    async def asked(self, node: Node[ActiveParty], trip: int, value: Handle[Tensor] | None = None) -> list[Message]:
        """Active party: ask every client, with E on the second trip, and return their answers."""
        for client in node.clients:
            await node.send(client, EvaluationRequest(value=value, round=trip))
        return await node.gather("evaluation", senders=node.clients, round=trip)

    async def answer_evaluation(self, node: Node[EasterParty], splits: Sequence[Split], number: int) -> None:
        """Passive party: answer with embeddings, then with predictions."""
        for split, trip in zip(splits, count(4 * number, 2), strict=False):
            await node.recv("evaluate", round=trip)
            h = await node.compute(node.learner.embed_split(split))
            await node.upload("server", EvaluationAnswer(value=h, round=trip))
            mean = await node.recv("evaluate", round=trip + 1)
            prediction = await node.compute(node.learner.predict_split(mean, split))
            await node.upload("server", EvaluationAnswer(value=prediction, round=trip + 1))

    # --- requirements ----------------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another aggregate than the mean."""
        super().check(context)
        if context.aggregate != "mean":
            raise ValueError(
                f"parties predict from the mean of all embeddings, not {context.aggregate}; "
                "allowed: models.aggregate: mean"
            )

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with two nets each; those that are alike are computed together."""
        clients = ClientsMade(EasterParty, setting.clients, lambda client: EasterParty(setting, client, seed))
        return Learners(ActiveParty(setting, seed), clients, stack_parties)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the active party's prediction from the mean of all embeddings."""
        active: ActiveParty = learners.server
        return prediction_of(active, active.predict_mean, lambda split: active.embedding(active.features(split)))

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        """Return the active party's prediction from the mean of the embeddings that came, its own included."""
        active: ActiveParty = learners.server
        return active.predict_mean([*embeddings.values()])

    def own(self, learners: Learners[Any, Any]) -> Tensor:
        """Return the active party's embedding."""
        active: ActiveParty = learners.server
        return active.embedding(active.features("test"))

    def describe(self, setting: Setting) -> str:
        """Count the models."""
        return f"{1 + len(setting.clients)} models, one for each party"
