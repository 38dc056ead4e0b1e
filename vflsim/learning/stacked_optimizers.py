"""Optimisers of many clients at once: the rules of PyTorch's, on parameters that lie side by side.

A client's step is the one that ``Optimizer.build``'s would take, within rounding, whichever others step with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from vflsim.learning.optimizers import Adam, Optimizer, Sgd

R = TypeVar("R", bound=Optimizer)


class StackedOptimizer(ABC, Generic[R]):
    """Steps of some of M clients whose ``parameters`` are (M, …) each.

    ``slots`` names what is remembered between steps, one tensor like each parameter; ``steps`` counts the steps of each
    client. Invariant: a client that does not step keeps parameters and memory, to the bit.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, rule: R, parameters: Sequence[Tensor]) -> None:
        self.rule, self.parameters, self._lr = rule, parameters, rule.lr
        self.memory = {slot: [torch.zeros_like(parameter) for parameter in parameters] for slot in self.slots}
        self.steps = [0] * len(parameters[0])

    def step(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step the clients at ``places`` (ascending) along their ``gradients``, (len(places), …) a parameter."""
        for place in places:
            self.steps[place] += 1
        counts = [self.steps[place] for place in places]
        whole_stack = len(places) == len(self.steps)
        index = None if whole_stack else torch.tensor(places, device=self.parameters[0].device)
        for n, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            whole = [parameter, *(self.memory[slot][n] for slot in self.slots)]
            some = whole if index is None else [tensor.index_select(0, index) for tensor in whole]
            self.update(gradient, counts, *some)
            if index is not None:
                for tensor, changed in zip(whole, some, strict=True):
                    tensor.index_copy_(0, index, changed)

    def scale_rate(self, factor: float) -> None:
        """Step at ``factor`` times the learning rate from now on."""
        self.rule = self.rule.model_copy(update={"lr": self._lr * factor})

    def state(self) -> dict[str, Tensor]:
        """Return the memory, by name: the tensors themselves, and the counts of steps."""
        memory = {f"{slot}.{n}": tensor for slot, tensors in self.memory.items() for n, tensor in enumerate(tensors)}
        return {"steps": torch.tensor(self.steps), **memory}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.steps = state["steps"].tolist()
        for slot, tensors in self.memory.items():
            for n, tensor in enumerate(tensors):
                tensor.copy_(state[f"{slot}.{n}"])

    @abstractmethod
    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """Update one parameter in place: all are (G, …); ``counts`` are the clients' steps, this one included.

        ``gradient`` must not be changed.
        """

    def decayed(self, gradient: Tensor, parameter: Tensor) -> Tensor:
        """Add the weight decay to the gradient."""
        decay = self.rule.weight_decay
        return gradient.add(parameter, alpha=decay) if decay else gradient


class StackedSgd(StackedOptimizer[Sgd]):
    """``torch.optim.SGD``'s rule."""

    def __init__(self, rule: Sgd, parameters: Sequence[Tensor]) -> None:
        self.slots = ("momentum_buffer",) if rule.momentum else ()
        super().__init__(rule, parameters)

    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """v ← momentum · v + g, θ ← θ − lr · v (or along g + momentum · v)."""
        direction = self.decayed(gradient, parameter)
        for velocity in memory:
            velocity.mul_(self.rule.momentum).add_(direction)
            direction = direction.add(velocity, alpha=self.rule.momentum) if self.rule.nesterov else velocity
        parameter.add_(direction, alpha=-self.rule.lr)


class StackedAdam(StackedOptimizer[Adam]):
    """``torch.optim.Adam``'s rule."""

    slots = ("exp_avg", "exp_avg_sq")

    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """Kingma & Ba 2015, Alg. 1, with every client's own count of steps."""
        mean, square = memory
        (beta1, beta2), rule = self.rule.betas, self.rule
        direction = self.decayed(gradient, parameter)
        mean.lerp_(direction, 1 - beta1)
        square.mul_(beta2).addcmul_(direction, direction, value=1 - beta2)
        sizes = [rule.lr / (1 - beta1**count) for count in counts]
        roots = [(1 - beta2**count) ** 0.5 for count in counts]
        if len(set(counts)) == 1:
            parameter.addcdiv_(mean, square.sqrt().div_(roots[0]).add_(rule.eps), value=-sizes[0])
            return
        shape = (-1, *([1] * (parameter.dim() - 1)))
        size, root = (torch.tensor(each, dtype=torch.float64).to(parameter).view(shape) for each in (sizes, roots))
        parameter.sub_(mean.div(square.sqrt().div_(root).add_(rule.eps)).mul_(size))


STACKED: dict[type[Optimizer], type[StackedOptimizer[Any]]] = {Sgd: StackedSgd, Adam: StackedAdam}
"""The stacked rule of every kind of optimiser."""
