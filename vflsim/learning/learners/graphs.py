"""A forward pass that waits for its gradient, from another party."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from vflsim.errors import RunError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import check_finite
from vflsim.learning.learners.party_model import PartyModel, descend, spare_buffers
from vflsim.learning.models.build import draw_from, drawing_from, generators_of
from vflsim.learning.states import State, named, under
from vflsim.vocabulary.on_demand import Tensor, nn, torch


class KeptGraph:
    """The latest forward pass ``function(x, *received)`` of a batch, until its backward pass.

    ``x_of`` returns x of a batch, such as its features; where it is None, ``function`` takes ``received`` alone.
    ``models`` are those that ``function`` applies. Invariant: the backward pass uses the parameters of the forward
    pass. The forward pass is repeated only if another batch came in between.
    """

    def __init__(
        self, x_of: Callable[[Batch], Any] | None, function: Callable[..., Tensor], models: Sequence[PartyModel]
    ) -> None:
        self.models = models
        self._x_of, self._function, self._takes = x_of, function, 0
        self._kept: tuple[Batch, tuple[Tensor, ...], Tensor] | None = None
        self._began: tuple[int, dict[str, Tensor]] | None = None
        self.seed: Callable[[], int] | None = None
        """What a forward pass of code from outside draws its random numbers from (dropout); None: there is no such."""

    def forward(self, batch: Batch, *received: Tensor) -> Tensor:
        """Compute and keep the output for ``batch``; return it detached."""
        for model in self.models:
            model.train()
        leaves = tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in received)
        self._began = None
        if self.seed is not None:  # the operation puts the generators back
            seed = self.seed()
            self._began = seed, self._buffers(copied=True)
            draw_from(seed, generators_of(self._device))
        output = self._output(batch, leaves)
        self._kept, self._takes = (batch, leaves, output), len(leaves)
        return output.detach()

    def backward(self, batch: Batch, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Step the models along ``gradient``, that of the output for ``batch``; return those for ``received``.

        They are None where the output does not depend on a tensor. Another graph or party continues the chain rule with
        them. Raises what ``take`` raises.
        """
        received = () if self._kept is None else self._kept[1]
        backward(batch, (self, gradient))
        return tuple(tensor.grad for tensor in received)

    def take(self, batch: Batch, gradient: Tensor | None = None) -> Tensor:
        """Return the output for ``batch``, with its graph, and forget it.

        A batch whose output is no longer kept gets a new forward pass at the present parameters. Raises ``RunError`` if
        that would need what was received for it, and ``NonFiniteError`` for a ``gradient`` that is not finite.
        """
        for model in self.models:
            model.train()
        kept, self._kept = self._kept, None
        if gradient is not None:
            check_finite(gradient)
        if kept is not None and kept[0] == batch:
            return kept[2]
        if self._takes:
            what = f"a gradient came for batch {batch.index}, of which no forward pass is kept"
            raise RunError(what, remedy="compute the forward pass of that batch last before its backward pass")
        return self._output(batch, ())

    def forget(self) -> None:
        """Keep no output any more: the parameters move by something else than a gradient for it."""
        self._kept = None

    def state(self) -> dict[str, Tensor]:
        """Return what the output was computed from, by name."""
        if self._kept is None:
            return {}
        batch, received, _ = self._kept
        inputs = {f"received.{n}": tensor.detach() for n, tensor in enumerate(received)}
        if self._began is not None:
            inputs |= {"seed": torch.tensor(self._began[0]), **named("buffer", self._began[1])}
        return {"batch": torch.tensor([batch.index, batch.origin]), "ids": batch.tensor(), **inputs}

    def load(self, state: State) -> None:
        """Compute the output anew from what ``state`` returned; buffers that training moves stay where they are."""
        self._kept = None
        if not state:
            return
        index, origin = state["batch"].tolist()
        received = under("received", state)
        seed = int(state["seed"]) if "seed" in state else None
        self.seed = None if seed is None else lambda: seed
        batch = Batch(index, state["ids"].clone().numpy(), origin)
        with spare_buffers([model.module for model in self.models]), drawing_from(0, self._device):
            before = under("buffer", state)
            for name, buffer in self._buffers().items() if before else ():
                buffer.copy_(before[name])
            self.forward(batch, *(received[str(n)].clone() for n in range(len(received))))

    def _buffers(self, copied: bool = False) -> dict[str, Tensor]:
        """Return the models' buffers by name, which a forward pass may read and move."""
        of = {
            f"{place}.{name}": buffer
            for place, module in self._parts
            for name, buffer in module._buffers.items()
            if buffer is not None
        }
        return {name: buffer.clone() for name, buffer in of.items()} if copied else of

    @cached_property
    def _parts(self) -> list[tuple[str, nn.Module]]:
        models = enumerate(self.models)
        return [(f"{n}.{name}", module) for n, model in models for name, module in model.module.named_modules()]

    @cached_property
    def _device(self) -> torch.device | None:
        return next((w.device for model in self.models for w in model.module.parameters()), None)

    def _output(self, batch: Batch, received: tuple[Tensor, ...]) -> Tensor:
        return self._function(*(() if self._x_of is None else (self._x_of(batch),)), *received)


def backward(batch: Batch, *pairs: tuple[KeptGraph, Tensor]) -> None:
    """Take one step of all models along the gradients of several outputs for ``batch``: (graph, gradient) each."""
    outputs = [graph.take(batch, gradient) for graph, gradient in pairs]
    models = dict.fromkeys(model for graph, _ in pairs for model in graph.models)
    descend(outputs, [gradient for _, gradient in pairs], list(models))
