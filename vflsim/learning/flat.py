"""A model whose weights are one long vector: an update is one pass over it, however many layers there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vflsim.learning.batching.updates import STACKED
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.states import load_module, module_state, named, under


class FlatModel:
    """The weights of ``model``, which from now on are views of one vector, and their optimiser.

    Steps are those of ``rule.build(model.parameters())``, to the bit but for the order within vector instructions.
    """

    def __init__(self, model: nn.Module, rule: Optimizer) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        sizes = [parameter.numel() for parameter in self.parameters]
        vector = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, torch.split(vector, sizes), strict=True):
            parameter.data = part.view(parameter.shape)
        self.optimizer = STACKED[type(rule)](rule, [vector[None]])

    def gradients(self, loss: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The gradient of ``loss`` by all weights, as a vector, and by each of ``leaves`` (zero if it has no part)."""
        found = torch.autograd.grad(loss, [*self.parameters, *leaves], materialize_grads=True)
        count = len(self.parameters)
        return torch.cat([gradient.flatten() for gradient in found[:count]]), list(found[count:])

    def step(self, gradient: Tensor) -> None:
        """One step along ``gradient``, a vector."""
        self.optimizer.step([0], [gradient[None]])

    def state(self) -> dict[str, Tensor]:
        """The weights, the model's buffers and what the optimiser remembers, by name: the tensors themselves."""
        return {**named("model", module_state(self.model)), **named("optimizer", self.optimizer.state())}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Be as when ``state`` was taken."""
        load_module(self.model, under("model", state))
        self.optimizer.load(under("optimizer", state))
