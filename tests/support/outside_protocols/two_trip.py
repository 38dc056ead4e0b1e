"""Two trips a round in the shape of EASTER (Alg. 1): every party embeds its own features and predicts by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from statistics import fmean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vflsim.protocol import (
    SERVER,
    Batch,
    CheckContext,
    DisconnectedError,
    Embedding,
    EvaluationAnswer,
    EvaluationRequest,
    Gradient,
    Handle,
    Learners,
    Message,
    Node,
    Operation,
    PartyLearner,
    Protocol,
    Received,
    Scores,
    Setting,
    Split,
    Staleness,
    Traits,
    finite_loss,
    party_name,
)


class Aggregate(Message):
    """The mean E of all parties' embeddings, (batch, embedding)."""

    kind: ClassVar[str] = "aggregate"


class Prediction(Message):
    """A party's prediction R = p(E), (batch, outputs)."""

    kind: ClassVar[str] = "prediction"


class TwoTrip(Protocol):
    """Trip 1: embeddings up, their mean down. Trip 2: predictions up, the loss's gradients down. All parties step."""

    kind: Literal["two_trip"] = "two_trip"
    traits: ClassVar[Traits] = Traits(
        waits_for_all=True,
        rounds_correspond=True,
        active_features=True,
        party_scores=True,
        mechanism=False,
        awaited_replies=("prediction",),
    )

    async def server(self, node: Node[Active]) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            own = await node.compute(node.learner.embed(batch))
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            joined = await node.compute(node.learner.join(own, embeddings))
            mean = Aggregate(batch, joined, round=k)
            trips = (self.second_trip(node, client, mean) for client in node.clients)
            mine, *theirs = await node.together(node.compute(node.learner.predict(mean)), *trips)
            gradients = await node.compute(node.learner.server_step(batch, mine, theirs))
            for client in node.clients:
                await node.send(client, Gradient(batch, gradients[client], round=k))

    async def second_trip(self, node: Node[Active], client: int, mean: Aggregate) -> Any:
        while True:
            await node.send(client, mean)
            try:
                return await node.recv("prediction", round=mean.round, sender=client)
            except DisconnectedError:
                await node.back(client)  # it has lost the mean

    async def client(self, node: Node[Party]) -> None:
        for k in node.rounds(over="gradient"):
            batch = node.batch(k)
            async with node.until("gradient", round=k):  # comes early if the client crashed after its prediction
                await node.activated()
                h = await node.compute(node.learner.embed(batch))
                await node.upload("server", Embedding(batch, h, round=k))
                mean = await node.recv("aggregate", round=k)
                prediction = await node.compute(node.learner.predict(mean))
                await node.upload("server", Prediction(batch, prediction, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.step(gradient))

    # --- evaluation: the same two trips, without losses -------------------------------------------------------------

    async def evaluate(self, node: Node[Active], splits: Sequence[Split], number: int) -> dict[Split, Handle[Scores]]:
        scores = {}
        for split, trip in zip(splits, count(4 * number, 2), strict=False):
            own = await node.compute(node.learner.embed_split(split))
            mean = await node.compute(node.learner.join(own, await self.asked(node, trip), "evaluate"))
            predictions = await self.asked(node, trip + 1, mean)
            scores[split] = await node.compute(node.learner.scored(split, mean, predictions))
        return scores

    async def asked(self, node: Node[Active], trip: int, value: Handle[Tensor] | None = None) -> list[Message]:
        for client in node.clients:
            await node.send(client, EvaluationRequest(value=value, round=trip))
        return await node.gather("evaluation", senders=node.clients, round=trip)

    async def answer_evaluation(self, node: Node[Party], splits: Sequence[Split], number: int) -> None:
        for split, trip in zip(splits, count(4 * number, 2), strict=False):
            await node.recv("evaluate", round=trip)
            h = await node.compute(node.learner.embed_split(split))
            await node.upload("server", EvaluationAnswer(value=h, round=trip))
            mean = await node.recv("evaluate", round=trip + 1)
            prediction = await node.compute(node.learner.predict_split(mean))
            await node.upload("server", EvaluationAnswer(value=prediction, round=trip + 1))

    # --- what it needs ----------------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> None:
        super().check(context)
        if context.aggregate != "mean":
            raise ValueError(f"parties predict from the mean embedding, not {context.aggregate}; set aggregate: mean")
        if context.active is None:
            raise ValueError("the server is the active party, and holds no features; set partition.active: true")

    def learners(self, setting: Setting, seed: int) -> Learners[Active, Party]:
        clients = {client: Party(setting, client, seed) for client in setting.clients}
        return Learners(Active(setting, SERVER, seed), clients)

    def describe(self, setting: Setting) -> str:
        return f"{len(setting.clients) + 1} parties, each with a predictor of its own"


class Party(PartyLearner):
    """An embedding net on the party's features, h(θ, D), and a head on the mean embedding, p(θ, E)."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed))
        training, outputs = setting.training, setting.data.outputs
        net = setting.models[party - 1] if party else setting.active_model
        rule = training.client_optimizer if party else training.server_optimizer
        assert net is not None, "check() asks for it"
        shape, width = setting.feature_shape_of(party), net.embedding
        self.parties, self.width, self.outputs = 1 + len(setting.clients), width, outputs
        self.embedding = self.add_model("embedding", lambda: net.build(shape), rule)
        self.head = self.add_model("head", lambda: setting.server_model.build(width, outputs), rule, inputs=(width,))
        self.embedded = self.add_graph("embedded", self.embedding, self.embedding)
        self.predicted = self.add_graph("predicted", self.head, self.head, features=False)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        h, cost = self.promise(len(batch), self.width), partial(self.embedding.forward_flops, len(batch))
        return self.operation("embed", lambda: h.set(self.embedded.forward(batch)), h, rows=len(batch), cost=cost)

    def predict(self, mean: Received) -> Operation[Handle[Tensor]]:
        batch, value, prediction = mean.batch, mean.value, self.promise(len(mean.batch), self.outputs)
        return self.operation(
            "predict", lambda: prediction.set(self.predicted.forward(batch, value.value)), prediction,
            inputs=[value], rows=len(batch), cost=partial(self.head.forward_flops, len(batch)),
        )  # fmt: skip

    def step(self, gradient: Received) -> Operation[None]:
        batch, value = gradient.batch, gradient.value
        return self.operation(
            "client_step", lambda: self.descend_both(batch, value.value), None,
            inputs=[value], rows=len(batch), cost=partial(self.backward_flops, len(batch)), counts="update",
        )  # fmt: skip

    def descend_both(self, batch: Batch, gradient: Tensor) -> None:
        """Step the head along ∂L/∂R, and the embedding net along ∂L/∂h = ∂L/∂E ÷ parties."""
        (slope,) = self.predicted.backward(batch, gradient)
        assert slope is not None, "a head depends on the embedding"
        self.embedded.backward(batch, slope / self.parties)

    def backward_flops(self, rows: int) -> float:
        return self.embedding.backward_flops(rows) + self.head.backward_flops(rows)

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        x = self.features(split)
        h, cost = self.promise(len(x), self.width), partial(self.embedding.forward_flops, len(x))
        return self.operation("evaluate", lambda: h.set(self.embedding(x)), h, rows=len(x), cost=cost)

    def predict_split(self, mean: Received) -> Operation[Handle[Tensor]]:
        value, rows = mean.value, mean.value.shape[0]
        prediction, cost = self.promise(rows, self.outputs), partial(self.head.forward_flops, rows)
        return self.operation(
            "evaluate", lambda: prediction.set(self.head(value.value)), prediction, inputs=[value], rows=rows, cost=cost
        )


class Active(Party):
    """The party that holds the labels, too: it joins embeddings, and takes every party's loss."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting, party, seed)
        self.clients, self.staleness = setting.clients, Staleness(setting.clients, setting.data.rows)

    def join(self, own: Handle[Tensor], theirs: Sequence[Received], kind: str = "join") -> Operation[Handle[Tensor]]:
        embeddings, mean = [own, *in_client_order(theirs).values()], self.promise(*own.shape)
        return self.operation(
            kind, lambda: mean.set(torch.stack([each.value for each in embeddings]).mean(0)), mean,
            inputs=embeddings, rows=own.shape[0],
        )  # fmt: skip

    def server_step(
        self, batch: Batch, mine: Handle[Tensor], theirs: Sequence[Received]
    ) -> Operation[dict[int, Handle[Tensor]]]:
        """Take the loss of every party's prediction, return the clients' gradients, and step along its own."""
        predictions, loss = {SERVER: mine, **in_client_order(theirs)}, Handle[float]()
        gradients = {client: self.promise(len(batch), self.outputs) for client in self.clients}

        def run() -> None:
            leaves = [self.leaf(prediction) for prediction in predictions.values()]
            losses = torch.stack([self.loss(leaf, batch) for leaf in leaves])
            loss.set(finite_loss(losses.detach().mean()))
            own, *others = torch.autograd.grad(losses.sum(), leaves)  # each loss depends on one prediction
            for gradient, slope in zip(gradients.values(), others, strict=True):
                gradient.set(slope)
            self.descend_both(batch, own)

        return self.operation(
            "server_step", run, gradients, inputs=predictions.values(), promises=[loss, *gradients.values()],
            rows=len(batch), cost=partial(self.backward_flops, len(batch)), counts="round",
            commit=lambda: self.staleness.complete([(batch, self.clients)], loss),
        )  # fmt: skip

    def scored(self, split: Split, mean: Handle[Tensor], theirs: Sequence[Received]) -> Operation[Handle[Scores]]:
        """Return each party's loss and metrics, and their means over the parties."""
        predictions, result = in_client_order(theirs), Handle[Scores]()

        def run() -> None:
            scores = {"server": self.scores(self.head(mean.value), split)}
            scores |= {party_name(client): self.scores(each.value, split) for client, each in predictions.items()}
            means = {name: fmean(each[name] for each in scores.values()) for name in scores["server"]}
            own = {f"{name}.{party}": value for party, each in scores.items() for name, value in each.items()}
            result.set(means | own)

        inputs, rows = [mean, *predictions.values()], mean.shape[0]
        return self.operation(
            "evaluate", run, result, inputs=inputs, rows=rows, cost=partial(self.head.forward_flops, rows)
        )


def in_client_order(messages: Sequence[Received]) -> dict[int, Handle[Tensor]]:
    return {message.sender: message.value for message in sorted(messages, key=lambda each: each.sender)}
