"""Steps at a multiple of the learning rate."""

from __future__ import annotations

from typing import Any

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner


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
