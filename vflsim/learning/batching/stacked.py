"""What a stack knows of the learners in it."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from vflsim.learning.learners.joint import PartyStack
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.base import Mechanism


class StackedParts(Protocol):
    """The update rule of a stacked model, and the mechanism that protects its embeddings."""

    @property
    def optimizer(self) -> Optimizer:
        """The rule."""

    @property
    def mechanism(self) -> Mechanism | None:
        """The mechanism, if any."""


class Stacked(Protocol):
    """What a stack reads of a learner, and what it tells it: the stack, and the place there."""

    stack: PartyStack | None
    place: int

    @property
    def model(self) -> nn.Module:
        """The embedding model."""

    @property
    def parts(self) -> StackedParts:
        """The rule and the mechanism, which are the same for all in a stack."""
