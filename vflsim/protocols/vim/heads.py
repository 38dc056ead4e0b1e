"""The base of protocols with one linear head for each client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch import Tensor

from vflsim.learning.models.server import LinearServer
from vflsim.protocols.answering import Answering
from vflsim.protocols.base import CheckContext, Protocol
from vflsim.protocols.capabilities import Explainable, Predicting, Selective
from vflsim.protocols.traits import ROUNDS, Traits, replace
from vflsim.protocols.vim.learning.whole import heads_of
from vflsim.protocols.vim.messages import Logits
from vflsim.setting import Learners, ServerPrediction, Setting, prediction_of
from vflsim.vocabulary.selections import Selection, others
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import Node


class LinearHeads(Explainable, Selective, Protocol):
    """Synchronous rounds of the model Σ_k h^k W_k (VIM Eq. 2).

    A scenario gives this model by ``aggregate: concat`` and ``server: {kind: linear, bias: false}``. W_k consists of
    the rows of that layer's weight that belong to client k's embedding. Therefore initial weights equal those of any
    other protocol with these models. The paper sums over the samples of a batch; this protocol takes the mean, as the
    authors' program does. β R is the optimisers' ``weight_decay`` β, with R(θ) = ½ ‖θ‖².
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    exclude: Selection | None = None
    """These clients never take part."""
    traits: ClassVar[Traits] = replace(
        ROUNDS,
        active_features=False,
        refuses_absent_rows="each client's head and dual variables need all of its rows",
    )

    sends: ClassVar[type[Message]] = Embedding
    """The kind of message that clients upload about a batch."""

    async def server(self, node: Node) -> None:
        """Step on what the clients have sent; send each client ∇ℓ by it."""
        for t in node.rounds():
            received = await node.gather(self.sends.kind, senders=node.clients, round=t)
            step = await node.compute(node.learner.server_step(received))
            for message in received:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=t))

    async def client(self, node: Node) -> None:
        """Send h^k of B(t), or what else the protocol ``sends``; step along the gradient by it."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", self.sends(batch, h, round=t))
            gradient = await node.recv("gradient", round=t)
            await node.compute(node.learner.client_step(batch, gradient))

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the clients that are not excluded."""
        return others(self.exclude, {**symbols, "N": clients})

    def without(self, clients: tuple[int, ...]) -> Self:
        """Return this protocol with these clients excluded."""
        return self.model_copy(update={"exclude": clients})

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for models that are not linear heads."""
        super().check(context)
        if not self.participants(context.clients, context.symbols):
            raise ValueError(f"exclude leaves none of the {context.clients} clients; at least one must stay")
        if context.aggregate != "concat":
            raise ValueError(
                f"{self.kind} has a linear head for each client, and the aggregate is {context.aggregate}; "
                "allowed: models.aggregate: concat"
            )
        if not isinstance(context.server, LinearServer) or context.server.bias:
            biased = " with a bias" if isinstance(context.server, LinearServer) else ""
            raise ValueError(
                f"{self.kind} has a linear head for each client, and the server's model is {context.server.kind}"
                f"{biased}; allowed: models.server: {{kind: linear, bias: false}}"
            )


class WholeModels(Predicting, Answering, LinearHeads):
    """Clients hold their heads, and send logits."""

    sends: ClassVar[type[Message]] = Logits

    def heads(self, setting: Setting, learners: Learners[Any, Any]) -> dict[int, Tensor]:
        """Return the head of each client."""
        return heads_of(learners)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the combined logits of the clients as a function of embeddings."""
        return prediction_of(learners.server, learners.server.combined)

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        """Combine the logits that came."""
        combined: Tensor = learners.server.combined([*embeddings.values()])
        return combined
