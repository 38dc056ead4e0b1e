"""A named model of a party: its module, its optimiser and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

from vflsim.learning.models.build import Draft, counted_weights, drafted, weights_of
from vflsim.learning.models.shapes import Footprint
from vflsim.learning.optimizers import STACKED, Optimizer, StackedOptimizer
from vflsim.learning.states import State, load_module, load_optimizer, module_state, named, optimizer_state, under
from vflsim.vocabulary.on_demand import Tensor, nn, torch


class PartyModel:
    """A module with its own optimiser and initial weights. Both are made when first needed.

    ``build`` returns the module with its initial weights; ``inputs`` is the shape of one row of its input. The backward
    pass computes ∂/∂input, too, where ``input_gradient`` is set: for a model that takes embeddings.
    """

    gradients_held: ClassVar[int] = 1
    """How many copies of the gradient a step holds."""

    def __init__(
        self,
        name: str,
        build: Callable[[], nn.Module],
        rule: Optimizer,
        inputs: tuple[int, ...],
        dtype: torch.dtype,
        input_gradient: bool = False,
        draft: Callable[[], nn.Module] | None = None,
    ) -> None:
        self.name, self.build, self.rule = name, build, rule
        self.inputs, self.dtype, self.input_gradient = tuple(inputs), dtype, input_gradient
        self._draft = draft
        self._flops: dict[int, tuple[float, float]] = {}

    @cached_property
    def module(self) -> nn.Module:
        """The module."""
        return self.build()

    @property
    def outline(self) -> nn.Module:
        """The module without values, on the meta device; the module itself where it cannot be made there."""
        module = None if self.made or self._draft is None else drafted(self._draft)
        return self.module if module is None else module.to(self.dtype)

    @cached_property
    def optimizer(self) -> Any:
        """The optimiser of the module's parameters: PyTorch's, unless a subclass brings its own."""
        return self.rule.build(self.module.parameters())

    @property
    def made(self) -> bool:
        """Whether the module has been built."""
        return "module" in vars(self)

    @property
    def parameters(self) -> int:
        """The number of weights that are trained."""
        return self._weights[0]

    @property
    def frozen(self) -> int:
        """The number of weights and buffers that are not trained."""
        return self._weights[1]

    @property
    def _weights(self) -> tuple[int, int]:
        return counted_weights(self.module) if self.made or self._draft is None else self._drafted_weights

    @cached_property
    def _drafted_weights(self) -> tuple[int, int]:
        assert self._draft is not None
        return weights_of(self._draft)

    def footprint(self, rows: int) -> Footprint:
        """Count the bytes of a forward pass of so many rows, without making the weights."""
        if self._draft is None:
            return Footprint()
        if isinstance(self._draft, Draft) and (chain := self._draft.chain) is not None:
            return chain.footprint(rows, self.dtype.itemsize)
        from vflsim.learning.models.footprint import footprint

        return footprint(self._draft, self.inputs, rows, self.dtype)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Apply the module: (rows, *inputs) → (rows, …), with a graph unless gradients are off."""
        output: Tensor = self.module(*inputs)
        return output

    def train(self) -> None:
        """Set the module to training mode."""
        self.module.train()

    def scale_rate(self, factor: float) -> None:
        """Step at ``factor`` times the learning rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rule.lr * factor

    def forward_flops(self, rows: int) -> float:
        """Count the FLOPs of a forward pass of ``rows`` rows."""
        return self._passes(rows)[0]

    def backward_flops(self, rows: int) -> float:
        """Count the FLOPs of a backward pass of ``rows`` rows."""
        return self._passes(rows)[1]

    def training_flops(self, rows: int) -> float:
        """Count the FLOPs of a forward and a backward pass of ``rows`` rows."""
        return sum(self._passes(rows))

    def state(self) -> dict[str, Tensor]:
        """Return weights, buffers and the optimiser's memory by name, as far as they have been made."""
        state = named("weights", module_state(self.module)) if self.made else {}
        if "optimizer" in vars(self):
            state |= {"optimizer": torch.empty(0), **named("optimizer", self._memory())}
        return state

    def load(self, state: State) -> None:
        """Restore what ``state`` returned, in place."""
        if "optimizer" in state:
            _ = self.optimizer  # some optimisers move the parameters: make it before the weights are put back
        if weights := under("weights", state):
            load_module(self.module, weights)
        if "optimizer" in state:
            self._recall(under("optimizer", state))

    def _passes(self, rows: int) -> tuple[float, float]:
        if isinstance(self._draft, Draft) and (chain := self._draft.chain) is not None:
            return chain.flops(rows, self.input_gradient)
        if rows not in self._flops:
            from vflsim.learning.models.footprint import flops_of

            self._flops[rows] = flops_of(self.module, (rows, *self.inputs), self.dtype, self.input_gradient)
        return self._flops[rows]

    def _memory(self) -> State:
        return optimizer_state(self.optimizer)

    def _recall(self, memory: State) -> None:
        load_optimizer(self.optimizer, memory)


def descend(outputs: Sequence[Tensor], gradients: Sequence[Tensor | None], models: Sequence[PartyModel]) -> None:
    """Take one step of each of ``models`` down the gradient of Σ outputs · gradients (None: 1, for a scalar).

    Leaves of the graph that require gradients, such as a received embedding, have theirs in ``.grad`` afterwards.
    """
    for model in models:
        model.optimizer.zero_grad()
    torch.autograd.backward(outputs, gradients)
    for model in models:
        model.optimizer.step()


@contextmanager
def spare_buffers(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Give the modules copies of their buffers (batch norm's averages), and afterwards their own back, untouched."""
    owners = [each for module in modules for each in module.modules()]
    originals = [dict(each._buffers) for each in owners]
    try:
        for each in owners:
            each._buffers.update({name: None if b is None else b.clone() for name, b in each._buffers.items()})
        yield
    finally:
        for each, buffers in zip(owners, originals, strict=True):
            each._buffers.update(buffers)


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
        gradients = torch.autograd.grad(loss, [*parameters, *leaves], materialize_grads=True)
        count = len(parameters)
        return _vector(gradients[:count]), list(gradients[count:])

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
