"""The servers of runs side by side: the top models as one chain of batched products, with written-out gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflsim.learning.batches import Batch, row_numbers
from vflsim.learning.batching.products import layers_of, through_layers
from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.optimizers import JoinedOptimizer, StackedOptimizer, joined
from vflsim.vocabulary.on_demand import Tensor, nn, torch


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Aggregates of equally long batches, (G, rows, width); ``batches[g]`` is one of run ``runs[g]``."""

    runs: Sequence[int]
    batches: Sequence[Batch]
    values: Tensor


def is_chain(server: ServerLearner) -> bool:
    """Return whether a server's model is a chain of linear layers and activations with weights of its own alone."""
    from vflsim.learning.models.layers import ACTIVATIONS  # imports PyTorch

    kinds = nn.Linear, *ACTIVATIONS.values()
    module = server.top.module
    layers = [*module] if isinstance(module, nn.Sequential) else [module]
    known = all(type(layer) in kinds for layer in layers) and isinstance(server.top.optimizer, StackedOptimizer)
    return known and server.embedding is None and server.mixing is None and any(True for _ in module.parameters())


class ServerStack:
    """R servers whose models are chains of the same layers: ``is_chain``.

    Invariants: all gradients of a step are taken before any weight moves; a server steps on the mean loss of its
    batches, and the gradients by aggregates are of their own batch's loss (as ``ServerLearner.step_on``).
    """

    def __init__(self, servers: Sequence[ServerLearner]) -> None:
        self._servers = servers
        labels = [server.labels("train") for server in servers]
        self._same_labels = all(each is labels[0] for each in labels)
        for server in servers:
            server.top.train()
        self._layers = layers_of(servers[0].top.module)
        optimizers = [_stacked(server) for server in servers]
        self._vector = joined([optimizer.parameters[0] for optimizer in optimizers])
        self._optimizer = JoinedOptimizer(optimizers, [self._vector], in_step=True)
        shapes = [parameter.shape for parameter in servers[0].top.vector_parts]
        parts = torch.split(self._vector, [shape.numel() for shape in shapes], 1)
        self._parameters = [part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def step(self, inputs: Sequence[Aggregated]) -> tuple[dict[int, Tensor], list[Tensor]]:
        """Step the servers of the runs in ``inputs``; return their mean losses, (), and ∂ℓ/∂H, one like each input."""
        counts = Counter(run for each in inputs for run in each.runs)
        runs = sorted(counts)
        losses: dict[int, list[Tensor]] = {run: [] for run in runs}
        total = self._vector.new_zeros(len(runs), self._vector.shape[1])
        by_inputs = []
        for each in inputs:
            prediction, back = through_layers(
                self._layers, self._weights(each.runs), each.values, by_input=True, as_modules=True
            )
            values, by_prediction = self._losses(each, prediction)
            for run, loss in zip(each.runs, values, strict=True):
                losses[run].append(loss)
            *gradients, by_input = back(by_prediction)
            by_inputs.append(by_input)
            flat = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
            if [*each.runs] == runs:
                total = total + flat if len(inputs) > 1 else flat
            else:
                index = torch.tensor([runs.index(run) for run in each.runs], device=flat.device)
                total.index_add_(0, index, flat)
        if len(runs) < sum(counts.values()):
            total = total / torch.tensor([[counts[run]] for run in runs], dtype=total.dtype, device=total.device)
        self._optimizer.step(runs, [total])
        return {run: _mean(some) for run, some in losses.items()}, by_inputs

    def store(self, run: int) -> None:
        """Copy what the server of a run has learnt to its own model."""
        optimizer, mine = _stacked(self._servers[run]), slice(run, run + 1)
        optimizer.parameters[0].copy_(self._vector[mine])
        self._optimizer.store(optimizer, mine)

    def _weights(self, runs: Sequence[int]) -> Sequence[Tensor]:
        if [*runs] == [*range(len(self._servers))]:
            return self._parameters
        index = torch.tensor(runs, device=self._vector.device)
        return [parameter.index_select(0, index) for parameter in self._parameters]

    def _y(self, inputs: Aggregated) -> Tensor:
        """The labels of the batches, (G, rows, …)."""
        if not self._same_labels:
            pairs = zip(inputs.runs, inputs.batches, strict=True)
            return torch.stack([self._servers[run].y(batch) for run, batch in pairs])
        labels = self._servers[0].labels("train")
        ids = row_numbers(inputs.batches, labels.device)
        return labels.index_select(0, ids.flatten()).view(*ids.shape, *labels.shape[1:])

    def _losses(self, inputs: Aggregated, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each batch, (G,), and the gradients by the predictions."""
        labels = self._y(inputs)
        task, leaf = self._servers[0].parts.task, prediction.detach().requires_grad_()
        with torch.enable_grad():
            if len(labels) == 1 or leaf.device.type == "cpu":  # a call each costs less than vmap, which sums otherwise
                losses = torch.stack([task.loss(*each) for each in zip(leaf, labels, strict=True)])
            else:
                losses = torch.func.vmap(task.loss)(leaf, labels)
            (by_prediction,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), by_prediction


def _mean(losses: Sequence[Tensor]) -> Tensor:
    return losses[0] if len(losses) == 1 else torch.stack(list(losses)).sum() / len(losses)


def _stacked(server: ServerLearner) -> StackedOptimizer[Any]:
    optimizer = server.top.optimizer
    assert isinstance(optimizer, StackedOptimizer), "``is_chain`` says so"
    return optimizer
