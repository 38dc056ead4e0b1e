"""FDML: whole models at the clients, trained by gradients (Hu et al. 2019b; the baseline of VIM Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from vflsim.protocols.answering import Answering
from vflsim.protocols.capabilities import Predicting
from vflsim.protocols.vim.heads import LinearHeads
from vflsim.protocols.vim.learning.stack import stack_whole
from vflsim.protocols.vim.learning.whole import Combine, LogitsServer, WholeClient, heads_of, whole_clients
from vflsim.protocols.vim.messages import Logits
from vflsim.setting import Learners, ServerPrediction, Setting, prediction_of
from vflsim.world.messages import Gradient
from vflsim.world.node import Node


class Fdml(Predicting, Answering, LinearHeads):
    """Round t: clients send logits of B(t), the server returns the gradient of the loss by the logits, clients step.

    A round sends b d_c numbers up and b d_c down for each client.

    Example: ``{kind: fdml, combine: mean, exclude: 3}``
    """

    kind: Literal["fdml"] = "fdml"
    combine: Combine = "sum"
    """The prediction is the ``sum`` of the clients' logits, or their ``mean``."""

    async def server(self, node: Node) -> None:
        """Combine the logits; send each client ∇_{o^k} ℓ."""
        for t in node.rounds():
            logits = await node.gather("logits", senders=node.clients, round=t)
            step = await node.compute(node.learner.server_step(logits))
            for message in logits:
                await node.send(message.sender, Gradient(value=step.gradient_for(message), round=t))

    async def client(self, node: Node) -> None:
        """Send o^k of B(t); update W_k and θ_k along gradients at the old values of both."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            o = await node.compute(node.learner.embed(batch))
            await node.upload("server", Logits(batch, o, round=t))
            gradient = await node.recv("gradient", round=t)
            await node.compute(node.learner.client_step(batch, gradient))

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server without a model."""
        clients = whole_clients(setting, seed, WholeClient)
        return Learners(LogitsServer(setting, self.combine), clients, stack_whole)

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
