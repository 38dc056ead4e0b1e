"""Rounds in which the server shares all values with all clients, and each party takes its steps: C-VFL and Flex-VFL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits
from vflsim.protocols.fedbcd import BlockServer, RecomputingClient, block_learners, shared_values_of
from vflsim.setting import Learners, Setting
from vflsim.vocabulary.quantities import Count, PositiveSeconds
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
        return block_learners(setting, seed, recomputed=True)

    def describe(self, setting: Setting) -> str:
        """Say which labels clients have to hold."""
        return "clients hold the labels of all training rows"


class CVfl(SharingRounds):
    """Round t: clients send C(h_m) of B(t), the server sends all C(h_m) and C(θ_0) to all clients; all take Q steps.

    C is the ``codec``. In each step a client recomputes its own h_m without compression, and uses the received values
    of the other parties. The server's steps use its own, uncompressed θ_0. Clients hold the labels.

    Example: ``{kind: c_vfl, local_steps: 5}``
    """

    kind: Literal["c_vfl"] = "c_vfl"
    local_steps: Count = 1
    """Q, the steps of every party in a round. Each is a computation; a client's counts as an update."""

    def counts(self, node: Node[Any]) -> StepCounts:
        """Return Q for every party."""
        return StepCounts(lambda: node.now, self.local_steps)


class FlexVfl(SharingRounds):
    """Round t: clients send h_m of B(t), the server sends all h_m and θ_0 to all clients; party m takes Q_m steps.

    In each step a client recomputes its own h_m, and uses the received values of the other parties. The Q_m are given
    (``local_steps``), or each party fills ``local_time`` with steps like those of its last round. Clients hold the
    labels.

    Examples: ``{kind: flex_vfl, local_steps: [10, 2, 4, 6, 8]}``, ``{kind: flex_vfl, local_time: 2 s, scale_rate:
    true}``
    """

    kind: Literal["flex_vfl"] = "flex_vfl"
    local_steps: tuple[Count, ...] | None = None
    """Q_m of every party: the server's, then the clients' in client order. Each step is a computation."""
    local_time: PositiveSeconds | None = None
    """The time that each party fills: Q_m = ⌊local_time ÷ time of a step⌋, at least 1, by the steps of its last round.
    A party's first round has one step."""
    scale_rate: bool = False
    """Whether learning rates shrink as a party takes more steps: by Q_m of the round before ÷ Q_m, in each round."""

    def scaled(self, operation: Operation[Any], learner: PartyLearner, steps: int) -> Operation[Any]:
        """Let a party step at its learning rate ÷ ``steps`` if rates scale: a first round has one step at the rate."""
        return at_rate(learner, operation, 1 / steps) if self.scale_rate else operation

    def counts(self, node: Node[Any]) -> StepCounts:
        """Return the given Q_m of a party, or what measures them."""
        steps = None if self.local_steps is None else self.local_steps[node.party]
        return StepCounts(lambda: node.now, steps, self.local_time)

    # --- facts that need no run --------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if there is not one number of steps for each party."""
        super().check(context)
        if self.local_steps is not None and len(self.local_steps) != context.clients + 1:
            raise ValueError(
                f"local_steps has {len(self.local_steps)} numbers; allowed: {context.clients + 1}, the server's and "
                f"one for each of the {context.clients} clients"
            )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.local_steps is None) == (self.local_time is None):
            raise ValueError("flex_vfl needs exactly one of local_steps and local_time")
        if self.scale_rate and self.local_time is None:
            raise ValueError("scale_rate changes nothing where the numbers of steps are given; allowed: local_time")
        return self

    def describe(self, setting: Setting) -> str:
        """Say which labels clients have to hold, and how many steps parties take."""
        if self.local_steps is None:
            return super().describe(setting)
        at_server, *others = self.local_steps
        steps = f"{at_server} local steps at the server, {min(others)} to {max(others)} at the clients"
        return f"{super().describe(setting)}; {steps}"


def at_rate(learner: PartyLearner, operation: Operation[Any], factor: float) -> Operation[Any]:
    """Let ``operation`` step all models of ``learner`` at ``factor`` times their learning rates.

    The learner is computed by itself: those that are computed together step by an optimiser of theirs.
    """
    assert learner.stack is None, "clients that compute their own gradients are not computed together"
    run, models = operation.run, tuple(learner.models.values())

    def scaled() -> None:
        for model in models:
            model.scale_rate(factor)
        run()
        for model in models:
            model.scale_rate(1.0)

    operation.run = scaled
    return operation
