"""VIMSGD: linear heads at the server, trained by gradients (VIM Alg. 2)."""

from __future__ import annotations

from typing import Any, Literal

from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols.vim.heads import LinearHeads
from vflsim.protocols.vim.learning.sgd import HeadsFirstServer
from vflsim.setting import Learners, Setting, server_parts, split_clients
from vflsim.world.messages import Embedding, Gradient
from vflsim.world.node import ClientNode, ServerNode


class VimSgd(LinearHeads):
    """Round t: clients embed B(t), the server steps its heads, clients step on gradients through the new heads.

    Example: ``{kind: vimsgd, gradient_heads: old, exclude: 3}``
    """

    kind: Literal["vimsgd"] = "vimsgd"
    gradient_heads: Literal["new", "old"] = "new"
    """The heads at which the clients' gradients are taken: those after the round's step, as in Alg. 2, or those before
    it, as in the authors' program and in ``synchronous`` training."""

    async def server(self, node: ServerNode) -> None:
        """Update all W_k (Eq. 12–13); send each client ∇_{h^k} ℓ (Eq. 14)."""
        for t in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=t)
            step = await node.compute(node.learner.server_step(embeddings))
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=t))

    async def client(self, node: ClientNode) -> None:
        """Send h^k of B(t); update θ_k along the gradient (Eq. 15–16)."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=t))
            gradient = await node.recv("gradient", round=t)
            await node.compute(node.learner.client_step(batch, gradient))

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server that may update its heads first."""
        clients = split_clients(setting, seed)
        server = HeadsFirstServer if self.gradient_heads == "new" else ServerLearner
        return Learners(server(server_parts(setting, seed)), clients)
