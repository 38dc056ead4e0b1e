"""Flex-VFL: every party takes as many local steps as its speed allows in a round (Castiglia et al., TNNLS 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Self

from pydantic import model_validator

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import CheckContext
from vflsim.protocols.fedbcd.learning import BlockServer
from vflsim.protocols.fedbcd.messages import shared_values_of
from vflsim.protocols.fedbcd.recomputed import RecomputingClient
from vflsim.protocols.fedbcd.sharing import SharingRounds
from vflsim.protocols.flex_vfl.rates import at_rate
from vflsim.protocols.step_counts import StepCounts
from vflsim.setting import Setting
from vflsim.vocabulary.quantities import Count, PositiveSeconds
from vflsim.world.messages import Embedding
from vflsim.world.node import Node


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

    async def server(self, node: Node[BlockServer]) -> None:
        """Forward all h_m of B(t), send θ_0, and take Q_0 steps, the first before sending."""
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

    def scaled(self, operation: Operation[Any], learner: PartyLearner, steps: int) -> Operation[Any]:
        """Let a party step at its learning rate ÷ ``steps`` if rates scale: a first round has one step at the rate."""
        return at_rate(learner, operation, 1 / steps) if self.scale_rate else operation

    def counts(self, node: Node[Any]) -> StepCounts:
        """Return how many steps the party takes."""
        return StepCounts(lambda: node.now, self.steps_of(node.party), self.local_time)

    def steps_of(self, party: int) -> int | None:
        """Return the given Q_m; None if parties measure."""
        return None if self.local_steps is None else self.local_steps[party]

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
        return "clients hold the labels of all training rows" + _counted(self.local_steps or ())


def _counted(steps: Sequence[int]) -> str:
    if not steps:
        return ""
    own, *others = steps
    return f"; {own} local steps at the server, {min(others)} to {max(others)} at the clients"
