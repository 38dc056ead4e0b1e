"""Small networks: PyTorch's own module, mapped over the clients."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor
from torch.func import functional_call, vmap

from vflsim.learning.batching.stack import Stack


class MappedStack(Stack):
    """S clients with the same network but for how many features its first layer takes: ``torch.func.vmap``.

    Absent features are zeros, whose weights have no gradient and stay zero.
    """

    def _side_by_side(self) -> list[Tensor]:
        models = [learner.model for learner in self.learners]
        self._names = [name for name, _ in models[0].named_parameters()]
        stacked: list[Tensor] = []
        for name in self._names:
            parameters = [model.get_parameter(name) for model in models]
            shape = [max(sizes) for sizes in zip(*(parameter.shape for parameter in parameters), strict=True)]
            values = parameters[0].new_zeros(len(models), *shape).detach()
            for place, parameter in enumerate(parameters):
                view = values[place][tuple(slice(size) for size in parameter.shape)]
                view.copy_(parameter.detach())
                parameter.data = view
            stacked.append(values)
        widest = max(range(len(models)), key=lambda place: models[place].get_parameter(self._names[0]).numel())
        self._network = copy.deepcopy(models[widest])
        return stacked

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Every client's network on its own rows."""

        def one(own: dict[str, Tensor], rows: Tensor) -> Tensor:
            h: Tensor = functional_call(self._network, own, (rows,))
            return h

        h: Tensor = vmap(one)(dict(zip(self._names, parameters, strict=True)), x)
        return h
