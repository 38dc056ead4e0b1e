"""Linear and polynomial clients, h = Σ_i (x^{∘i} W^i + b^i), as matrix products alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from vflsim.learning.batches import Batch
from vflsim.learning.batching.stack import Backward, Stack
from vflsim.learning.learners.work import Rows


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

    @torch.no_grad()
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

    @torch.no_grad()
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
