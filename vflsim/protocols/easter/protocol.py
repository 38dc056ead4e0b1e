"""EASTER, one run of which gives C models (Alg. 1), and the protocols of its comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal

from vflsim.errors import DisconnectedError
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.learners.server import ServerStep
from vflsim.learning.learners.staleness import Staleness
from vflsim.learning.models.build import seeded
from vflsim.learning.privacy.blinding import Blinding
from vflsim.protocols.answering import Answering, Scores, of_parties
from vflsim.protocols.base import ROUNDS, Protocol, Traits, replace
from vflsim.protocols.blinded import agree_on_keys, of_all, relay_keys
from vflsim.protocols.easter.learning import PREDICTORS, ActiveParty, EasterParty, TwoNets
from vflsim.protocols.easter.stack import stack_parties
from vflsim.protocols.synchronous import RoundTrips
from vflsim.protocols.vim.admm import round_step
from vflsim.protocols.vim.protocol import Logits
from vflsim.protocols.vim.whole import Combine, WholeClient
from vflsim.setting import ClientsMade, Learners, ServerPrediction, Setting, client_parts, prediction_of
from vflsim.streams import SERVER, torch_seed
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import Embedding, EvaluationAnswer, EvaluationRequest, Gradient, Message
from vflsim.world.node import ClientNode, Node


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
        aggregate=("mean", "parties predict from the mean of all embeddings, not {other}"),
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

    # --- the learning plane -----------------------------------------------------------------------------------------

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with two nets each; those that are alike are computed together."""
        clients = ClientsMade(EasterParty, setting.clients, lambda client: EasterParty(setting, client, seed))
        return Learners(ActiveParty(setting, seed), clients, stack_parties)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the active party's prediction from the mean of all embeddings."""
        active: ActiveParty = learners.server
        return prediction_of(active, active.predict_mean, lambda split: active.embedding(active.features(split)))

    def describe(self, setting: Setting) -> str:
        """Count the models."""
        return f"{1 + len(setting.clients)} models, one for each party"


def whole_party(setting: Setting, client: int, seed: int) -> WholeClient:
    """Make a passive party, which uploads its predictions o_k = p(h(x_k)), (rows, outputs)."""
    rule, inputs, outputs = setting.optimizer_of(client), (setting.models[client - 1].embedding,), setting.data.outputs
    build = partial(setting.predictor_of(client).build, *inputs, outputs)
    weights = torch_seed(seed, client, "weights/predictor")
    factory = partial(seeded, build, weights, setting.dtype, setting.device)
    predictor = PartyModel("predictor", factory, rule, inputs, setting.dtype, True, build)
    return WholeClient(client_parts(setting, client, seed), predictor, outputs)


class WholeActive(TwoNets):
    """The active party. Its prediction is the mean, or the sum, of its own o_0 and the received predictions, if any."""

    def __init__(self, setting: Setting, seed: int, combine: Combine = "mean") -> None:
        super().__init__(setting, SERVER, seed)
        self._combine = torch.mean if combine == "mean" else torch.sum
        self.clients, self.staleness = setting.clients, Staleness(setting.clients, setting.data.rows)

    def server_step(self, messages: Sequence[Received], batch: Batch | None = None) -> Operation[ServerStep]:
        """Step both nets on the loss of a batch's combined predictions; return a handle of ∂ℓ/∂o_k for every message.

        ``batch`` is needed without messages. Raises ``NonFiniteError`` when it runs.
        """
        ordered, step = in_client_order(messages), ServerStep()
        batch = batch or ordered[0].batch
        promised = [step.promise(message) for message in ordered]

        def run() -> None:
            leaves = [self.leaf(message.value) for message in ordered]
            loss = self.loss(self.combined([self.whole(self.x(batch)), *leaves]), batch)
            step.loss.set(self.descend(loss, self.embedding, self.predictor))
            for handle, leaf in zip(promised, leaves, strict=True):
                assert leaf.grad is not None, "every prediction counts"
                handle.set(leaf.grad)

        def cost() -> float:
            return self.embedding.training_flops(len(batch)) + self.predictor.training_flops(len(batch))

        return round_step(self, ordered, step, promised, run, cost, batch)

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[dict[str, float]]]:
        """Return loss and metrics of the combined prediction, and if there are several parties, of each party's own."""
        x, result, ordered = self.features(split), Handle[dict[str, float]](), in_client_order(answers)

        def run() -> None:
            prediction, others = self.whole(x), {each.sender: each.value.value for each in ordered}
            scores = self.scores(self.combined([prediction, *others.values()]), split)
            each = {SERVER: prediction, **others} if others else {}
            result.set(scores | of_parties({party: self.scores(o, split) for party, o in each.items()}))

        return self.operation(
            "evaluate", run, result, inputs=[message.value for message in ordered], rows=len(x),
            cost=lambda: self.embedding.forward_flops(len(x)) + self.predictor.forward_flops(len(x)),
        )  # fmt: skip

    def combined(self, predictions: Sequence[Tensor | None]) -> Tensor:
        """Return the mean, or the sum, of the parties' predictions, None where one is missing."""
        return self._combine(torch.stack([o for o in predictions if o is not None]), 0)


class WholeNets(Protocol):
    """The base of protocols whose parties have whole networks, without a trained model on top."""

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the combined predictions of all parties as a function of embeddings."""
        active: WholeActive = learners.server
        return prediction_of(active, active.combined, lambda split: active.whole(active.features(split)))


class AggVfl(Answering, WholeNets, RoundTrips):
    """Round t: clients send their predictions of B(t), the active party aggregates them with its own and returns the
    gradients; every party steps its two nets. There is no trained model on top.

    Example: ``{kind: agg_vfl, combine: sum}``
    """

    kind: Literal["agg_vfl"] = "agg_vfl"
    combine: Combine = "mean"
    """The prediction is the ``mean`` of all parties' predictions, or their ``sum``."""
    traits: ClassVar[Traits] = PREDICTORS

    sends: ClassVar[type[Message]] = Logits

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with whole models."""
        clients = ClientsMade(WholeClient, setting.clients, lambda client: whole_party(setting, client, seed))
        return Learners(WholeActive(setting, seed, self.combine), clients)


class Local(WholeNets):
    """Round t: the active party steps its two nets on B(t) of its own features. No client takes part.

    Example: ``{kind: local}``
    """

    kind: Literal["local"] = "local"
    traits: ClassVar[Traits] = Traits(
        rounds_correspond=True,
        active_features=True,
        predictors=True,
        mechanism=False,
        refuses_absent_rows="the server predicts every row from its own features",
        uploads_nothing="no client takes part, so the server gets no embedding from anybody",
    )

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return no client."""
        return []

    async def server(self, node: Node[WholeActive]) -> None:
        """Take a step in each round."""
        for t in node.rounds():
            await node.compute(node.learner.server_step([], node.batch(t)))

    async def client(self, node: ClientNode) -> None:
        """Do nothing; there are no clients."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the active party."""
        return Learners(WholeActive(setting, seed), {})


class PyVertical(RoundTrips):
    """Synchronous rounds: every party with features, the active one included, has a bottom model; a top model takes
    their concatenated outputs.

    Example: ``{kind: pyvertical}``
    """

    kind: Literal["pyvertical"] = "pyvertical"
    traits: ClassVar[Traits] = replace(
        ROUNDS,
        aggregate=("concat", "the top of a split network takes the bottoms' outputs side by side, not their {other}"),
    )
