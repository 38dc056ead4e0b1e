"""Flex-VFL: every party takes as many local steps as its speed allows in a round (Castiglia et al., TNNLS 2023)."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import CheckContext
from vflsim.protocols.fedbcd.sharing import SharingRounds, StepCounts
from vflsim.setting import Setting
from vflsim.vocabulary.quantities import Count, PositiveSeconds
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
