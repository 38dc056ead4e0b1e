"""Perceptrons: batched products layer by layer, and their gradients written out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from vflsim.learning.batches import Batch
from vflsim.learning.batching.stack import Backward, Graph, Stack
from vflsim.learning.learners.work import Rows

LayerBackward: TypeAlias = Callable[[Tensor], list[Tensor]]
"""Maps ∂L/∂output to ∂L/∂weight and ∂L/∂bias, if there are any, and then ∂L/∂input, if there is need of it."""


class LayeredStack(Stack):
    """S clients with the same layers, linear or elementwise; the number of features of the first layer may differ.

    Absent features are zeros, whose weights have no gradient and stay zero. Where the last layer is linear, a sum over
    all clients is one product there: what comes out of the layers before it, side by side, times all its weights.
    """

    def _side_by_side(self) -> list[Tensor]:
        models = [learner.model for learner in self.learners]
        names = [name for name, _ in models[0].named_parameters()]
        stacked: list[Tensor] = []
        for name in names:
            parameters = [model.get_parameter(name) for model in models]
            shape = [max(sizes) for sizes in zip(*(parameter.shape for parameter in parameters), strict=True)]
            values = parameters[0].new_zeros(len(models), *shape).detach()
            for place, parameter in enumerate(parameters):
                view = values[place][tuple(slice(size) for size in parameter.shape)]
                view.copy_(parameter.detach())
                parameter.data = view
            stacked.append(values)
        network = models[0]
        assert isinstance(network, nn.Sequential)
        self._layers = [copy.deepcopy(layer) for layer in network if not isinstance(layer, nn.Flatten)]
        return stacked

    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Every client's layers on its own rows, piece by piece: what they compute stays in the processor's cache."""
        pieces = self.pieces(*x.shape[:2])
        passes = [_through(self._layers, [each[piece] for each in parameters], x[piece]) for piece in pieces]
        if len(passes) == 1:
            return passes[0]

        def backward(received: Tensor) -> list[Tensor]:
            found = [back(received[piece]) for piece, (_, back) in zip(pieces, passes, strict=True)]
            return [torch.cat(each) for each in zip(*found, strict=True)]

        return torch.cat([h for h, _ in passes]), backward

    def total(self, places: Sequence[int], rows: Rows, parameters: Sequence[Tensor]) -> Tensor:
        """Σ_m h_m, (rows, width); that over all clients at their present weights is kept for its gradients."""
        if self.mechanism is not None:
            return super().total(places, rows, parameters)
        some = self._of(places, parameters)
        if len(places) == len(self.learners) and parameters is self.parameters and isinstance(rows, Batch):
            total, back = self._sum(self.features.same_rows(rows), places, some)
            self._joint_graph = Graph(places, (rows,), total, back)
            return total
        return torch.cat([self._sum(x, places, some)[0] for x in self.features.blocks(rows)])

    def joint_gradients(self, batch: Batch, received: Tensor) -> Sequence[Tensor]:
        """Those through the sum."""
        if self._joint_graph is None or self._joint_graph.rows != (batch,):
            self.total(range(len(self.learners)), batch, self.parameters)
        assert self._joint_graph is not None, "the sum over all clients keeps it"
        return self._joint_graph.back(received)

    def _sum(self, x: Tensor, places: Sequence[int], some: Sequence[Tensor]) -> tuple[Tensor, Backward]:
        own = x.view(len(x), len(self.learners), -1).transpose(0, 1)
        own = own if len(places) == len(self.learners) else own[list(places)]
        if not isinstance(self._layers[-1], nn.Linear):
            h, back = _through(self._layers, some, own)
            return h.sum(0), lambda received: back(received.expand(h.shape))
        *body, weight, bias = some
        hidden, through_body = _through(self._layers[:-1], body, own, inner=True)
        flat, whole = hidden.transpose(0, 1).flatten(1), weight.transpose(1, 2).flatten(0, 1)

        def backward(received: Tensor) -> list[Tensor]:
            by_weight = (flat.T @ received).view(len(places), -1, received.shape[1]).transpose(1, 2)
            by_hidden = (received @ whole.T).view(len(x), len(places), -1).transpose(0, 1)
            return [*through_body(by_hidden), by_weight, received.sum(0).expand(bias.shape)]

        return torch.addmm(bias.sum(0), flat, whole), backward


@torch.no_grad()
def _through(
    layers: Sequence[nn.Module], parameters: Sequence[Tensor], x: Tensor, inner: bool = False
) -> tuple[Tensor, Backward]:
    """Apply layers with the parameters (G, …) of G clients to ``x``, (G, rows, …); ∂L/∂x is not computed.

    ``inner``: more layers follow, so the gradient that the last of these receives may be written over.
    """
    remaining, backs = iter(parameters), list[LayerBackward]()
    for n, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            x, back = _affine(next(remaining), next(remaining), x, by_input=n > 0)
        elif isinstance(layer, nn.ReLU):
            x, back = _relu(x, last=n == len(layers) - 1 and not inner)
        else:
            x, back = _elementwise(layer, x)
        backs.append(back)

    def backward(received: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for back in reversed(backs):
            *by_parameters, received = back(received)
            found[:0] = by_parameters
        return found

    return x, backward


def _affine(weight: Tensor, bias: Tensor, x: Tensor, by_input: bool) -> tuple[Tensor, LayerBackward]:
    def backward(received: Tensor) -> list[Tensor]:
        by_x = torch.bmm(received, weight) if by_input else received
        return [torch.bmm(x.transpose(1, 2), received).transpose(1, 2), received.sum(1), by_x]

    return torch.bmm(x, weight.transpose(1, 2)).add_(bias[:, None]), backward


def _relu(x: Tensor, last: bool) -> tuple[Tensor, LayerBackward]:
    """In place, and backwards, too, unless others see the gradient: linear layers do not need their own output."""
    y = x.relu_()

    def backward(received: Tensor) -> list[Tensor]:
        by_x = torch.empty_like(received) if last else received
        return [torch.ops.aten.threshold_backward.grad_input(received, y, 0, grad_input=by_x)]

    return y, backward


def _elementwise(layer: nn.Module, x: Tensor) -> tuple[Tensor, LayerBackward]:
    leaf = x.requires_grad_()
    with torch.enable_grad():
        y: Tensor = layer(leaf)
    return y.detach(), lambda received: list(torch.autograd.grad(y, leaf, received))
