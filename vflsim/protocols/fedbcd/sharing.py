"""Rounds in which the server shares all values with all clients, and each party takes its steps: C-VFL and Flex-VFL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import LabelSharing
from vflsim.protocols.fedbcd.learning import BlockServer
from vflsim.protocols.fedbcd.messages import shared_values_of
from vflsim.protocols.fedbcd.recomputed import RecomputingClient, recomputing_learners
from vflsim.protocols.step_counts import StepCounts
from vflsim.protocols.traits import ROUNDS, Traits
from vflsim.setting import Learners, Setting
from vflsim.world.messages import Embedding
from vflsim.world.node import Node


class SharingRounds(LabelSharing, Protocol):
    """Round t: clients send h_m of B(t), the server sends all h_m and θ_0 to all clients; every party takes its steps.

    Clients hold the labels and compute their own gradients. In each step a client recomputes its own h_m, and uses the
    received values of the other parties.
    """

    traits: ClassVar[Traits] = ROUNDS

    @abstractmethod
    def counts(self, node: Node[Any]) -> StepCounts:
        """Return how many steps the party takes."""

    def scaled(self, operation: Operation[Any], learner: PartyLearner, steps: int) -> Operation[Any]:
        """Return an operation that is one of so many ``steps``: by default as it is."""
        return operation

    async def server(self, node: Node[BlockServer]) -> None:
        """Forward all h_m of B(t) as they came, send θ_0, and take Q_0 steps, the first before sending."""
        counts = self.counts(node)
        for t in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=t)
            steps = counts.begin()
            own = await node.compute(self.scaled(node.learner.sharing_step(embeddings), node.learner, steps))
            shared = shared_values_of(own, embeddings, t)
            for client in node.clients:
                await node.send(client, shared)
            await self.step_further(node, steps, partial(node.learner.local_step, embeddings))
            counts.end()

    async def client(self, node: Node[RecomputingClient]) -> None:
        """Send h_m of B(t); take Q_m steps of θ_m while the values of the others stay fixed."""
        counts = self.counts(node)
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=t))
            shared = await node.recv("shared_values", round=t)
            steps = counts.begin()
            await node.compute(self.scaled(node.learner.client_step(batch, shared), node.learner, steps))
            await self.step_further(node, steps, partial(node.learner.step_again, batch, shared))
            counts.end()

    async def step_further(self, node: Node[Any], steps: int, make: Callable[[], Operation[Any]]) -> None:
        """Take all of a party's ``steps`` except the first."""
        for _ in range(steps - 1):
            await node.compute(self.scaled(make(), node.learner, steps))

    @property
    def labels_at_clients(self) -> bool:
        """Return True: clients need labels to compute their gradients."""
        return True

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients that compute their own gradients, and a server that steps repeatedly."""
        return recomputing_learners(setting, seed)

    def describe(self, setting: Setting) -> str:
        """Say which labels clients have to hold."""
        return "clients hold the labels of all training rows"
