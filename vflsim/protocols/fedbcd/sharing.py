"""Rounds in which the server shares all values with all clients, and each party takes its steps: C-VFL and Flex-VFL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import ROUNDS, Protocol, Traits
from vflsim.protocols.fedbcd.learning import BlockServer, RecomputingClient, recomputing_learners, shared_values_of
from vflsim.setting import Learners, Setting
from vflsim.world.messages import Embedding
from vflsim.world.node import Node

_ROUNDING = 1e-9
"""Measured times are differences of clock times: three steps of 2 ms still fit into 6 ms."""


class StepCounts:
    """The numbers of local steps of one party: ``given``, or as many as fit into ``seconds``, by its measured steps.

    A party that measures reads ``clock`` (seconds), and takes one step in its first round, at the start and after a
    crash. Given numbers read no clock.

    Example::

        counts = StepCounts(lambda: node.now, seconds=10.0)
        steps = counts.begin()  # 1
        ...  # the step takes 3 s
        counts.end()
        steps = counts.begin()  # 3
    """

    def __init__(self, clock: Callable[[], float], given: int | None = None, seconds: float | None = None) -> None:
        assert (given is None) != (seconds is None), "either a number, or the seconds to fill"
        self._clock, self._number, self._seconds = clock, given, seconds
        self._step = self._begun = 0.0
        self._steps = 1

    def begin(self) -> int:
        """Return the number of steps of a round that begin now: at least 1."""
        if self._number is not None:
            return self._number
        assert self._seconds is not None
        self._steps = max(1, int(self._seconds / self._step * (1 + _ROUNDING))) if self._step > 0 else 1
        self._begun = self._clock()
        return self._steps

    def end(self) -> None:
        """Note that the steps of the round have ended now."""
        if self._number is None:
            self._step = (self._clock() - self._begun) / self._steps


class SharingRounds(Protocol):
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
            values = await node.compute(self.scaled(node.learner.sharing_step(embeddings), node.learner, steps))
            shared = shared_values_of(values, embeddings, t)
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
