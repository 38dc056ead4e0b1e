"""C-VFL: every party takes Q steps on values exchanged once in compressed form (Castiglia et al. 2022, Alg. 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from vflsim.analysis.findings import Finding
from vflsim.learning.batches import Batch
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import Analysable, LabelSharing
from vflsim.protocols.contents import Contents
from vflsim.protocols.fedbcd.acts import sharing_acts
from vflsim.protocols.fedbcd.formulas import in_parallel
from vflsim.protocols.fedbcd.learning import BlockServer
from vflsim.protocols.fedbcd.messages import SharedValues, shared_values_of
from vflsim.protocols.fedbcd.recomputed import (
    RecomputingClient,
    recomputing_learners,
    shared_content,
    shared_shapes,
)
from vflsim.protocols.traits import ROUNDS, Traits
from vflsim.protocols.vectorisable import Vectorisable
from vflsim.recurrences import BARRIERS, Acts, Recurrence, TimedWorld
from vflsim.recurrences.synchronous import SynchronousRounds
from vflsim.setting import Exchange, Learners, Setting
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Embedding
from vflsim.world.node import Node


class CVfl(Analysable, Vectorisable, LabelSharing, Protocol):
    """Round t: clients send C(h_m) of B(t), the server sends all C(h_m) and C(θ_0) to all clients; all take Q steps.

    C is the ``codec``. In each step a client recomputes its own h_m without compression, and uses the received values
    of the other parties. The server's steps use its own, uncompressed θ_0. Clients hold the labels.

    Example: ``{kind: c_vfl, local_steps: 5}``
    """

    kind: Literal["c_vfl"] = "c_vfl"
    local_steps: Count = 1
    """Q, the steps of every party in a round. Each is a computation; a client's counts as an update."""
    traits: ClassVar[Traits] = ROUNDS
    vectorised_keys: ClassVar[frozenset[str]] = frozenset({"kind", "local_steps"})

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

    @property
    def labels_at_clients(self) -> bool:
        """Return True: clients need labels to compute their gradients."""
        return True

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients that compute their own gradients, and a server that steps repeatedly."""
        return recomputing_learners(setting, seed)

    def exchange(self, setting: Setting, client: int, rows: int) -> Exchange:
        """Return an embedding up, all embeddings and θ_0 down, and Q steps.

        All but the first repeat the forward pass.
        """
        up = super().exchange(setting, client, rows).up
        down = shared_shapes(setting, setting.clients, rows)
        return Exchange(up, down, self.local_steps, anew=True, passed_on=tuple(map(party_name, setting.clients)))

    def contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return the contents of split training, and the values from which clients compute gradients."""
        split = super().contents(setting, sender, receiver, rows)
        if receiver == SERVER:
            return split
        return {**split, SharedValues.kind: shared_content(setting, self.exchange(setting, receiver, rows))}

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the law of the maximum of the clients' cycles and the server's further steps, plus a server step."""
        return in_parallel(self, setting, self.local_steps - 1)

    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return an embedding up, all values down, and Q steps of the client and of the server."""
        return sharing_acts(server, clients, client, batch, self.local_steps, self.local_steps - 1)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what rounds know that wait for all clients."""
        return BARRIERS

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of rounds that wait for the slowest client."""
        return SynchronousRounds(world)

    def describe(self, setting: Setting) -> str:
        """Say which labels and values clients have to hold."""
        return "clients hold the labels of all training rows"
