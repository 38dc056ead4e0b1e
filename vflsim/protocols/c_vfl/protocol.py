"""C-VFL: every party takes Q steps on values exchanged once in compressed form (Castiglia et al. 2022, Alg. 1)."""

from __future__ import annotations

from typing import Literal

from vflsim.protocols.fedbcd.learning import BlockServer
from vflsim.protocols.fedbcd.messages import shared_values_of
from vflsim.protocols.fedbcd.recomputed import (
    RecomputingClient,
)
from vflsim.protocols.fedbcd.sharing import SharingRounds
from vflsim.setting import Setting
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Embedding
from vflsim.world.node import Node


class CVfl(SharingRounds):
    """Round t: clients send C(h_m) of B(t), the server sends all C(h_m) and C(θ_0) to all clients; all take Q steps.

    C is the ``codec``. In each step a client recomputes its own h_m without compression, and uses the received values
    of the other parties. The server's steps use its own, uncompressed θ_0. Clients hold the labels.

    Example: ``{kind: c_vfl, local_steps: 5}``
    """

    kind: Literal["c_vfl"] = "c_vfl"
    local_steps: Count = 1
    """Q, the steps of every party in a round. Each is a computation; a client's counts as an update."""

    async def server(self, node: Node[BlockServer]) -> None:
        """Forward all C(h_m) of B(t) without re-encoding, send C(θ_0), and take Q steps, the first before sending."""
        for t in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=t)
            own = await node.compute(node.learner.sharing_step(embeddings))
            shared = shared_values_of(own, embeddings, t)
            for client in node.clients:
                await node.send(client, shared)
            for _ in range(self.local_steps - 1):
                await node.compute(node.learner.local_step(embeddings))

    async def client(self, node: Node[RecomputingClient]) -> None:
        """Send C(h_m) of B(t); take Q steps of θ_m while the values of the others stay fixed."""
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=t))
            shared = await node.recv("shared_values", round=t)
            await node.compute(node.learner.client_step(batch, shared))
            for _ in range(self.local_steps - 1):
                await node.compute(node.learner.step_again(batch, shared))

    def steps_of(self, party: int) -> int:
        """Return Q."""
        return self.local_steps

    def describe(self, setting: Setting) -> str:
        """Say which labels and values clients have to hold."""
        return "clients hold the labels of all training rows"
