"""VIMADMM-J: ADMM with whole models at the clients (VIM Alg. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from torch import Tensor

from vflsim.protocols.answering import Answering
from vflsim.protocols.capabilities import Predicting
from vflsim.protocols.vim.learning.joint import JointAdmmClient, JointAdmmServer
from vflsim.protocols.vim.learning.stack import stack_whole
from vflsim.protocols.vim.learning.whole import heads_of, whole_clients
from vflsim.protocols.vim.messages import AdmmVariables, Logits
from vflsim.protocols.vim.vimadmm import Admm
from vflsim.setting import Learners, ServerPrediction, Setting, prediction_of
from vflsim.world.node import Node


class VimAdmmJ(Predicting, Answering, Admm):
    """Round t: clients send logits of B(t), the server updates z and λ, clients take ``local_steps`` of W_k and θ_k.

    A round sends b d_c numbers up and 2 b d_c down for each client.

    Example: ``{kind: vimadmm_j, rho: 2, local_steps: 20, exclude: 3}``
    """

    kind: Literal["vimadmm_j"] = "vimadmm_j"

    async def server(self, node: Node) -> None:
        """Update z (Eq. 17) and λ (Eq. 18); send each client λ and s^k (Eq. 19)."""
        for t in node.rounds():
            logits = await node.gather("logits", senders=node.clients, round=t)
            step = await node.compute(node.learner.server_step(logits))
            for client in node.clients:
                await node.send(client, AdmmVariables(round=t, tensors=step.variables_for(client)))

    async def client(self, node: Node) -> None:
        """Send o^k of B(t); update W_k (Eq. 20) and θ_k (Eq. 21) in turn, τ times."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            o = await node.compute(node.learner.embed(batch))
            await node.upload("server", Logits(batch, o, round=t))
            variables = await node.recv("admm_variables", round=t)
            for _ in range(self.local_steps):
                await node.compute(node.learner.client_step(batch, variables))

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server that keeps λ and z of every training row."""
        make = partial(JointAdmmClient, rho=self.rho)
        return Learners(JointAdmmServer(setting, self.rho), whole_clients(setting, seed, make), stack_whole)

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
