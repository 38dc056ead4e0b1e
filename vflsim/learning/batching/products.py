"""Batched products: of perceptrons layer by layer, and of linear and polynomial clients, with written-out gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from vflsim.learning.batches import Batch
from vflsim.learning.batching.stack import Backward, Graph, Stack, pieces_of
from vflsim.learning.learners.inputs import Rows
from vflsim.vocabulary.on_demand import Tensor, nn, torch, without_gradients

_NARROW = 16
"""Outputs of a layer below which its product is computed the other way round, with a batch's rows side by side."""
LayerBackward: TypeAlias = Callable[[Tensor], list[Tensor]]
"""Maps ∂L/∂output to ∂L/∂weight and ∂L/∂bias, if there are any, and then ∂L/∂input, if there is need of it."""


class LayeredStack(Stack):
    """S clients with the same layers, linear or elementwise; the number of features of the first layer may differ.

    Absent features are zeros, whose weights have no gradient and stay zero. Where the last layer is linear, a sum over
    all clients is one product there: what comes out of the layers before it, side by side, times all its weights.
    """

    def _side_by_side(self) -> list[Tensor]:
        models = [learner.model for learner in self.learners]
        self._layers = layers_of(models[0])
        return side_by_side(models)

    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Every client's layers on its own rows, piece by piece: what they compute stays in the processor's cache."""
        return through_pieces(self._layers, parameters, x, pieces_of(self.parameters, *x.shape[:2]))

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

    def totals(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """One run after the other: their products are a run's time."""
        count = len(self.learners)
        by_run = zip(*(torch.split(parameter, count) for parameter in parameters), strict=True)
        sums = [self._sum(rows, range(count), some) for rows, some in zip(x, by_run, strict=True)]

        def backward(received: Tensor) -> list[Tensor]:
            each = [back(its) for its, (_, back) in zip(received, sums, strict=True)]
            return [torch.cat(gradients) for gradients in zip(*each, strict=True)]

        return torch.stack([total for total, _ in sums]), backward

    def _sum(self, x: Tensor, places: Sequence[int], some: Sequence[Tensor]) -> tuple[Tensor, Backward]:
        features = x.view(len(x), len(self.learners), -1).transpose(0, 1)
        features = features if len(places) == len(self.learners) else features[list(places)]
        if not isinstance(self._layers[-1], nn.Linear):
            h, back = through_layers(self._layers, some, features)
            return h.sum(0), lambda received: back(received.expand(h.shape))
        *body, weight, bias = some
        pieces, inner = pieces_of(self.parameters, len(places), len(x)), self._layers[:-1]
        passes: list[tuple[Tensor, Backward]] = []
        total = bias.sum(0).expand(len(x), -1).clone()
        for piece in pieces:
            passes.append(through_layers(inner, [each[piece] for each in body], features[piece], inner=True))
            total.addmm_(passes[-1][0].transpose(0, 1).flatten(1), weight[piece].transpose(1, 2).flatten(0, 1))

        def backward(received: Tensor) -> list[Tensor]:
            gradients = []
            for piece, (hidden, through_body) in zip(pieces, passes, strict=True):
                for_each = received.expand(len(hidden), *received.shape)
                by_weight, by_hidden = _by_weight(hidden, for_each), torch.bmm(for_each, weight[piece])
                gradients.append([*through_body(by_hidden), by_weight])
            return [*map(torch.cat, zip(*gradients, strict=True)), received.sum(0).expand(bias.shape)]

        return total, backward


def layers_of(network: nn.Module) -> list[nn.Module]:
    """Return copies of a perceptron's layers, in the order in which they are applied to rows of features."""
    layers = network if isinstance(network, nn.Sequential) else [network]
    return [copy.deepcopy(layer) for layer in layers if not isinstance(layer, nn.Flatten)]


def side_by_side(models: Sequence[nn.Module]) -> list[Tensor]:
    """Stack the parameters of models with the same layers, (S, …) each, zero-padded, and make theirs views of these."""
    stacked: list[Tensor] = []
    for name, _ in models[0].named_parameters():
        parameters = [model.get_parameter(name) for model in models]
        shape = [max(sizes) for sizes in zip(*(parameter.shape for parameter in parameters), strict=True)]
        values = parameters[0].new_zeros(len(models), *shape).detach()
        for place, parameter in enumerate(parameters):
            view = values[place][tuple(slice(size) for size in parameter.shape)]
            view.copy_(parameter.detach())
            parameter.data = view
        stacked.append(values)
    return stacked


def through_pieces(
    layers: Sequence[nn.Module],
    parameters: Sequence[Tensor],
    x: Tensor,
    pieces: Sequence[slice],
    by_input: bool = False,
) -> tuple[Tensor, Backward]:
    """Apply layers as ``through_layers`` does, to some of the G models at a time."""
    passes = [
        through_layers(layers, [each[piece] for each in parameters], x[piece], by_input=by_input) for piece in pieces
    ]
    if len(passes) == 1:
        return passes[0]

    def backward(received: Tensor) -> list[Tensor]:
        gradients = [back(received[piece]) for piece, (_, back) in zip(pieces, passes, strict=True)]
        return [torch.cat(each) for each in zip(*gradients, strict=True)]

    return torch.cat([h for h, _ in passes]), backward


@without_gradients
def through_layers(
    layers: Sequence[nn.Module],
    parameters: Sequence[Tensor],
    x: Tensor,
    inner: bool = False,
    by_input: bool = False,
    as_modules: bool = False,
) -> tuple[Tensor, Backward]:
    """Apply layers with the parameters (G, …) of G models to ``x``, (G, rows, …).

    The way back returns ∂L/∂parameters and, with ``by_input``, ∂L/∂x at the end. ``inner``: more layers follow, so the
    gradient that the last of these receives may be written over. ``as_modules``: every product has the order of
    factors, and so mostly the bits, of PyTorch's own module.
    """
    remaining, backs = iter(parameters), list[LayerBackward]()
    for n, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            weight, bias = next(remaining), None if layer.bias is None else next(remaining)
            x, back = _affine(weight, bias, x, by_input or n > 0, as_modules)
        elif isinstance(layer, nn.ReLU):
            x, back = _relu(x if n else x.clone(), last=n == len(layers) - 1 and not inner)
        else:
            x, back = _elementwise(layer, x if n else x.clone())
        backs.append(back)

    def backward(received: Tensor) -> list[Tensor]:
        gradients: list[Tensor] = []
        for back in reversed(backs):
            *by_parameters, received = back(received)
            gradients[:0] = by_parameters
        return [*gradients, received] if by_input else gradients

    return x, backward


def _affine(
    weight: Tensor, bias: Tensor | None, x: Tensor, by_input: bool, as_modules: bool
) -> tuple[Tensor, LayerBackward]:
    def backward(received: Tensor) -> list[Tensor]:
        by_x = torch.bmm(received, weight) if by_input else received
        by_bias = [] if bias is None else [received.sum(1)]
        by_weight = torch.bmm(received.transpose(1, 2), x) if as_modules else _by_weight(x, received)
        return [by_weight, *by_bias, by_x]

    if weight.shape[1] < _NARROW <= x.shape[1] and not as_modules:
        y = torch.bmm(weight, x.transpose(1, 2)).transpose(1, 2)
        return y if bias is None else y.add_(bias[:, None]), backward
    whole = weight.transpose(1, 2)
    return torch.bmm(x, whole) if bias is None else torch.baddbmm(bias[:, None], x, whole), backward


def _by_weight(x: Tensor, received: Tensor) -> Tensor:
    """∂L/∂weight, (G, outputs, inputs), by the product with the longer rows, which is up to five times as fast."""
    if received.shape[2] < x.shape[2]:
        return torch.bmm(received.transpose(1, 2), x)
    return torch.bmm(x.transpose(1, 2), received).transpose(1, 2)


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


class ProductStack(Stack):
    """S clients whose embeddings are polynomials of their features (FedVS Eq. 1); linear ones are of degree 1.

    ``parameters`` are W^1 … W^D, (S, features, width) each, then b^1 … b^D, (S, width), where there are any. A sum over
    all clients, and the step along a gradient that all of them share, are one product a power: the clients' columns
    side by side are then one long row. Otherwise the products are batched.
    """

    def _side_by_side(self) -> list[Tensor]:
        layers = [[m for m in learner.model.modules() if isinstance(m, nn.Linear)] for learner in self.learners]
        stacked: list[Tensor] = []
        for power in zip(*layers, strict=True):
            first = power[0].weight
            weights = first.new_zeros(len(power), self.features.width, first.shape[0]).detach()
            for place, layer in enumerate(power):
                view = weights[place, : layer.in_features]
                view.copy_(layer.weight.detach().T)
                layer.weight.data = view.T
            stacked.append(weights)
        self._degree = len(stacked)
        for power in zip(*layers, strict=True) if layers[0][0].bias is not None else ():
            biases = torch.stack([layer.bias.detach() for layer in power])
            for place, layer in enumerate(power):
                layer.bias.data = biases[place]
            stacked.append(biases)
        return stacked

    @without_gradients
    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Batched products, one a power."""
        weights, biases = parameters[: self._degree], parameters[self._degree :]
        h: Tensor | None = None
        for power, weight in zip(self._powers(x), weights, strict=True):
            h = torch.bmm(power, weight) if h is None else torch.baddbmm(h, power, weight)
        assert h is not None, "the degree is at least 1"
        for bias in biases:
            h = h + bias[:, None]
        return h, partial(self._backward, x)

    @property
    def keeps_graph(self) -> bool:
        """Only to differentiate a mechanism's bound."""
        return self.mechanism is not None

    def gradients(self, places: Sequence[int], batches: Sequence[Batch], received: Tensor) -> Sequence[Tensor]:
        """Without a forward pass, unless there is a bound to differentiate."""
        if self.keeps_graph:
            return super().gradients(places, batches, received)
        return self._backward(self._x(places, batches), received)

    def _backward(self, x: Tensor, received: Tensor) -> list[Tensor]:
        """dW^i = (x^{∘i})ᵀ ∂ℓ/∂h, db^i = Σ ∂ℓ/∂h: independent of the weights."""
        products = [torch.bmm(power.transpose(1, 2), received) for power in self._powers(x)]
        return [*products, *[received.sum(1)] * (len(self.parameters) - self._degree)]

    def backward(self, parameters: Sequence[Tensor], x: Tensor) -> Backward:
        """Without a forward pass."""
        return partial(self._backward, x)

    @without_gradients
    def totals(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """One product a power and run, batched over the runs."""
        runs, shape = len(x), parameters[0].shape
        biases = [bias.view(runs, -1, shape[-1]).sum(1) for bias in parameters[self._degree :]]
        total = sum(biases[1:], start=biases[0])[:, None] if biases else x.new_zeros(1)
        powers = list(self._powers(x))
        for power, weight in zip(powers, parameters, strict=False):
            total = torch.baddbmm(total, power, weight.reshape(runs, -1, shape[-1]))

        def backward(received: Tensor) -> list[Tensor]:
            products = [torch.bmm(power.transpose(1, 2), received).view(shape) for power in powers]
            bias = received.sum(1, keepdim=True).expand(-1, shape[0] // runs, -1).flatten(0, 1)
            return [*products, *[bias] * len(biases)]

        return total, backward

    @without_gradients
    def total(self, places: Sequence[int], rows: Rows, parameters: Sequence[Tensor]) -> Tensor:
        """Σ_m h_m = Σ_i (x_1^{∘i}, x_2^{∘i}, …) (W_1^i; W_2^i; …) + Σ_m Σ_i b_m^i."""
        if self.mechanism is not None:
            return super().total(places, rows, parameters)
        some = self._of(places, parameters)
        parts = [self._sum(x, places, some) for x in self.features.blocks(rows)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _sum(self, x: Tensor, places: Sequence[int], some: Sequence[Tensor]) -> Tensor:
        if len(places) < len(self.learners):
            x = x.view(len(x), len(self.learners), -1)[:, list(places)].flatten(1)
        h = some[self._degree :]
        total = sum((bias.sum(0) for bias in h[1:]), start=h[0].sum(0)) if h else None
        for power, weight in zip(self._powers(x), some, strict=False):
            flat = weight.reshape(-1, weight.shape[-1])
            total = power @ flat if total is None else torch.addmm(total, power, flat)
        assert total is not None, "the degree is at least 1"
        return total

    def joint_gradients(self, batch: Batch, received: Tensor) -> Sequence[Tensor]:
        """dW of all clients as one product: their features side by side, transposed, times what all have received."""
        shape = len(self.learners), self.features.width, received.shape[1]
        x = self.features.same_rows(batch)
        products = [(power.T @ received).view(shape) for power in self._powers(x)]
        bias = received.sum(0).expand(shape[0], -1)
        return [*products, *[bias] * (len(self.parameters) - self._degree)]

    def _powers(self, x: Tensor) -> Iterator[Tensor]:
        """x, x∘x, …, by repeated multiplication."""
        power = x
        yield power
        for _ in range(self._degree - 1):
            power = power * x
            yield power
