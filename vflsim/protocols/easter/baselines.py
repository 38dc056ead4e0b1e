"""EASTER's baselines: AggVFL, local models, PyVertical; and what whole networks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.server import ServerStep
from vflsim.learning.learners.staleness import Staleness
from vflsim.protocols.answering import Answering, Scores, of_parties
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits
from vflsim.protocols.easter.learning import PREDICTORS, TwoNets, need_features
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.vim import Fdml
from vflsim.protocols.vim.learning.whole import Combine
from vflsim.setting import ClientsMade, Learners, ServerPrediction, Setting, prediction_of
from vflsim.streams import SERVER
from vflsim.world.node import ClientNode, Node, ServerNode


class WholeParty(TwoNets):
    """A passive party, which uploads its predictions o_k = p(h(x_k)), (rows, outputs)."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting, party, seed)
        self._predicted = self.add_graph("predicted", self.whole, self.embedding, self.predictor)

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of both nets."""
        return super().flops(kind, rows) if kind == "client_step" else _forward(self, rows)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Predict for a batch."""
        o = self.promise(len(batch), self.outputs)
        return self.operation(
            "embed", lambda: o.set(self._predicted.forward(batch)), o,
            rows=len(batch), cost=partial(self.flops, "embed", len(batch)),
        )  # fmt: skip

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step both nets along ∂ℓ/∂o_k."""

        def run() -> None:
            self._predicted.backward(batch, gradient.value.value)

        return self.operation(
            "client_step", run, None, inputs=[gradient.value], rows=len(batch), counts="update",
            cost=partial(self.flops, "client_step", len(batch)),
        )  # fmt: skip

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        """Predict for all rows of a split."""
        x = self.features(split)
        o, cost = self.promise(len(x), self.outputs), partial(self.flops, "evaluate", len(x))
        return self.operation("evaluate", lambda: o.set(self.whole(x)), o, rows=len(x), cost=cost)


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
        ordered, step = sorted(messages, key=attrgetter("sender")), ServerStep()
        batch = batch or ordered[0].batch
        promised = [step.promise(message) for message in ordered]

        def run() -> None:
            leaves = [self.leaf(message.value) for message in ordered]
            loss = self.loss(self.combined([self.whole(self.x(batch)), *leaves]), batch)
            step.loss.set(self.descend(loss, self.embedding, self.predictor))
            for handle, leaf in zip(promised, leaves, strict=True):
                assert leaf.grad is not None, "every prediction counts"
                handle.set(leaf.grad)

        return self.operation(
            "server_step", run, step, inputs=[message.value for message in ordered],
            promises=[step.loss, *promised], rows=len(batch), counts="round",
            cost=lambda: _forward(self, len(batch)) + self.flops("server_step", len(batch)),
            commit=lambda: self.staleness.complete([(batch, self.clients)] if ordered else [], step.loss),
        )  # fmt: skip

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[dict[str, float]]]:
        """Return loss and metrics of the combined prediction, and if there are several parties, of each party's own."""
        x, result, ordered = self.features(split), Handle[dict[str, float]](), sorted(answers, key=attrgetter("sender"))

        def run() -> None:
            prediction, others = self.whole(x), {each.sender: each.value.value for each in ordered}
            scores = self.scores(self.combined([prediction, *others.values()]), split)
            each = {SERVER: prediction, **others} if others else {}
            result.set(scores | of_parties({party: self.scores(o, split) for party, o in each.items()}))

        return self.operation(
            "evaluate", run, result, inputs=[message.value for message in ordered], rows=len(x),
            cost=partial(_forward, self, len(x)),
        )  # fmt: skip

    def combined(self, predictions: Sequence[Tensor | None]) -> Tensor:
        """Return the mean, or the sum, of the parties' predictions, None where one is missing."""
        return self._combine(torch.stack([o for o in predictions if o is not None]), 0)


def _forward(party: TwoNets, rows: int) -> float:
    return party.embedding.forward_flops(rows) + party.predictor.forward_flops(rows)


class AggVfl(Answering, Protocol):
    """Round t: clients send their predictions of B(t), the active party aggregates them with its own and returns the
    gradients; every party steps its two nets. There is no trained model on top.

    Example: ``{kind: agg_vfl, combine: sum}``
    """

    kind: Literal["agg_vfl"] = "agg_vfl"
    combine: Combine = "mean"
    """The prediction is the ``mean`` of all parties' predictions, or their ``sum``."""
    traits: ClassVar[Traits] = PREDICTORS

    async def server(self, node: Node[WholeActive]) -> None:
        """Combine the predictions; send each client ∂ℓ/∂o_k."""
        await Fdml().server(node)

    async def client(self, node: Node[WholeParty]) -> None:
        """Send o_k of B(t); step along the gradient."""
        await Fdml().client(node)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a server without features."""
        super().check(context)
        need_features(context)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with whole models."""
        clients = ClientsMade(WholeParty, setting.clients, lambda client: WholeParty(setting, client, seed))
        return Learners(WholeActive(setting, seed, self.combine), clients)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the combined predictions of all parties as a function of embeddings."""
        active: WholeActive = learners.server
        return prediction_of(active, active.combined, lambda split: active.whole(active.features(split)))

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        """Combine the active party's prediction with those that came."""
        active: WholeActive = learners.server
        return active.combined([*embeddings.values()])

    def own(self, learners: Learners[Any, Any]) -> Tensor:
        """Return the active party's prediction from its own features."""
        active: WholeActive = learners.server
        return active.whole(active.features("test"))


class Local(Protocol):
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

    async def evaluate(
        self, node: Node[WholeActive], splits: Sequence[Split], number: int
    ) -> dict[Split, Handle[Scores]]:
        """Return loss and metrics of the active party's predictions."""
        return {split: await node.compute(node.learner.evaluate(split, [])) for split in splits}

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a server without features."""
        super().check(context)
        need_features(context)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the active party."""
        return Learners(WholeActive(setting, seed), {})

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the active party's prediction from its own features."""
        active: WholeActive = learners.server
        return prediction_of(active, active.combined, lambda split: active.whole(active.features(split)))


class PyVertical(Protocol):
    """Synchronous rounds: every party with features, the active one included, has a bottom model; a top model takes
    their concatenated outputs.

    Example: ``{kind: pyvertical}``
    """

    kind: Literal["pyvertical"] = "pyvertical"
    traits: ClassVar[Traits] = ROUNDS

    async def server(self, node: ServerNode) -> None:
        """Wait for the outputs of all bottoms; step; return the gradients."""
        await Synchronous().server(node)

    async def client(self, node: ClientNode) -> None:
        """Each round: embed, upload, wait for the gradient, step."""
        await Synchronous().client(node)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another aggregate than ``concat``."""
        super().check(context)
        if context.aggregate != "concat":
            raise ValueError(
                f"the top of a split network takes the bottoms' outputs side by side, not their {context.aggregate}; "
                "allowed: models.aggregate: concat"
            )
