"""A model whose weights become one long vector: an update is one pass over it, however many layers there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.stacked_optimizers import STACKED, StackedOptimizer
from vflsim.learning.states import State, load_optimizer, optimizer_state


class FlatModel(PartyModel):
    """A model whose parameters become views of one vector when its optimiser is made.

    Steps equal those of ``rule.build(module.parameters())`` to the bit, except for the order within vector
    instructions.
    """

    gradients_held: ClassVar[int] = 2  # autograd's, and the vector of them

    @cached_property
    def vector_parts(self) -> list[nn.Parameter]:
        """The parameters, in the order of the vector."""
        return list(self.module.parameters())

    @cached_property
    def optimizer(self) -> StackedOptimizer[Optimizer] | _Built:
        """The optimiser of the vector; of the parameters by themselves for a rule from outside."""
        parameters = self.vector_parts
        vector = _vector([parameter.detach() for parameter in parameters])
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(parameters, torch.split(vector, sizes), strict=True):
            parameter.data = part.view(parameter.shape)
        stacked = STACKED.get(type(self.rule))
        return _Built(self.rule, parameters) if stacked is None else stacked(self.rule, [vector[None]])

    def train(self) -> None:
        """Make the weights one vector, and set the module to training mode."""
        _ = self.optimizer
        super().train()

    def gradients(self, loss: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the gradient of ``loss`` by all weights, a vector, and by each of ``leaves`` (or zeros)."""
        parameters = self.vector_parts
        found = torch.autograd.grad(loss, [*parameters, *leaves], materialize_grads=True)
        count = len(parameters)
        return _vector(found[:count]), list(found[count:])

    def step(self, gradient: Tensor) -> None:
        """Take one step along ``gradient``, a vector."""
        self.optimizer.step([0], [gradient[None]])

    def scale_rate(self, factor: float) -> None:
        """Step at ``factor`` times the learning rate from now on."""
        self.optimizer.scale_rate(factor)

    def _memory(self) -> State:
        return self.optimizer.state()

    def _recall(self, memory: State) -> None:
        self.optimizer.load(memory)


class _Built:
    """The optimiser that a rule builds for ``parameters``, whose gradients come as one vector."""

    def __init__(self, rule: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters, self._built, self._lr = parameters, rule.build(parameters), rule.lr

    def step(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step along the only gradient, (1, weights), as ``StackedOptimizer.step`` does."""
        parts = torch.split(gradients[0][0], [parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)
        self._built.step()
        self._built.zero_grad()

    def scale_rate(self, factor: float) -> None:
        """Step at ``factor`` times the learning rate from now on."""
        for group in self._built.param_groups:
            group["lr"] = self._lr * factor

    def state(self) -> State:
        """Return the memory, by name."""
        return optimizer_state(self._built)

    def load(self, state: State) -> None:
        """Restore what ``state`` returned."""
        load_optimizer(self._built, state)


def _vector(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors as one vector; empty for a model without weights."""
    return torch.cat([tensor.flatten() for tensor in tensors]) if tensors else torch.empty(0)
