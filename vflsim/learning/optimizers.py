"""The update rules of a party's weights: PyTorch's optimisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Literal, Self, TypeAlias, get_args

import torch
from pydantic import AfterValidator, Field, model_validator
from torch.nn.parameter import Parameter

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import Fraction01, NonNegativeNumber, PositiveNumber


def _below_one(value: float) -> float:
    if value >= 1:
        raise ValueError(f"{value:g} would never forget; allowed: at least 0 and below 1")
    return value


Memory = Annotated[Fraction01, AfterValidator(_below_one)]
"""The part of a running average that survives a step: at least 0 and below 1."""


class Optimizer(Part, ABC):
    """An update rule for weights θ with gradient g.

    Example, which a scenario names by ``client_optimizer: {kind: module, path: "mine:Adadelta", lr: 0.5}``::

        class Adadelta(Optimizer):
            kind: Literal["adadelta"] = "adadelta"

            @property
            def slots(self) -> int:
                return 2

            def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
                return torch.optim.Adadelta(params, self.lr, weight_decay=self.weight_decay, foreach=False)


        Adadelta(lr=0.5).slots  # 2
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    lr: PositiveNumber
    """The learning rate."""
    weight_decay: NonNegativeNumber = 0.0
    """Added to the gradient, times θ."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many numbers it remembers of each weight between steps."""

    @abstractmethod
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser for these parameters, in its plain implementation.

        The grouped and fused ones may sum in another order, which would tie the results to the hardware.
        """


class Sgd(Optimizer):
    """Stochastic gradient descent: v ← momentum · v + g, θ ← θ − lr · v (``torch.optim.SGD``).

    Example: ``{kind: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-4}``
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Memory = 0.0
    """The part of the velocity v that survives a step."""
    nesterov: bool = False
    """Step along g + momentum · v instead of v."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    @property
    def slots(self) -> int:
        """The velocity, with momentum."""
        return 1 if self.momentum else 0

    def build(self, params: Iterable[Parameter]) -> torch.optim.SGD:
        """``torch.optim.SGD``."""
        return torch.optim.SGD(
            params,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            foreach=False,
            fused=False,
        )


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, Alg. 1), ``torch.optim.Adam``.

    Example: ``{kind: adam, lr: 0.001, betas: [0.9, 0.99], eps: 1e-7, weight_decay: 1e-4}``
    """

    kind: Literal["adam"] = "adam"
    betas: tuple[Memory, Memory] = (0.9, 0.999)
    """The parts of the running averages of g and of g² that survive a step."""
    eps: PositiveNumber = 1e-8
    """Added to the denominator."""

    @property
    def slots(self) -> int:
        """Both running averages."""
        return 2

    def build(self, params: Iterable[Parameter]) -> torch.optim.Adam:
        """``torch.optim.Adam``."""
        return torch.optim.Adam(
            params,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            foreach=False,
            fused=False,
        )


OptimizerKind: TypeAlias = Sgd | Adam
OPTIMIZERS: tuple[type[Optimizer], ...] = get_args(OptimizerKind)
AnyOptimizer = Annotated[
    OptimizerKind, Field(discriminator="kind"), OrModule(Optimizer, trial="vflsim.learning.optimizer_trial:try_out")
]
