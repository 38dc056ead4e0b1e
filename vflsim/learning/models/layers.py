"""The modules that PyTorch does not have, and the pieces that client and server models share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from vflsim.learning.models.shapes import Activation, Norm

ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class PolynomialNetwork(nn.Module):
    """h = Σ_{i=1..D} (x^{∘i} W^i + b^i), x^{∘i} the element-wise i-th power (FedVS Eq. 1, biases included).

    Maps (b, …) to (b, ``outputs``); ``powers[i - 1]`` holds W^i and b^i.
    """

    def __init__(self, inputs: int, outputs: int, degree: int, bias: bool) -> None:
        super().__init__()
        self.powers = nn.ModuleList(nn.Linear(inputs, outputs, bias=bias) for _ in range(degree))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the polynomial; powers are built by repeated multiplication, terms added in order of degree."""
        x = x.flatten(1)
        power, total = x, self.powers[0](x)
        for term in self.powers[1:]:
            power = power * x
            total = total + term(power)
        return total  # type: ignore[no-any-return]  # modules are untyped when called


class Offset(nn.Module):
    """Add one trainable number to every column: (b, ``width``) to (b, ``width``), zero at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x + bias``."""
        return x + self.bias


class WeightedSum(nn.Module):
    """Σ α_m h_m over the embeddings that are present, (b, width); α (M,) starts at 1/M."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((parties,), 1 / parties, dtype=torch.float64))

    def forward(self, embeddings: Sequence[Tensor | None]) -> Tensor:
        """Add the weighted embeddings up, in client order."""
        terms = [alpha * h for alpha, h in zip(self.weights, embeddings, strict=True) if h is not None]
        return torch.stack(terms).sum(0)


class Heads(nn.Module):
    """One head for each party: (rows, width) → (parties, rows, outputs)."""

    def __init__(self, make: Callable[[], nn.Module], parties: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(make() for _ in range(parties))

    def forward(self, h: Tensor) -> Tensor:
        """Return every head's prediction from the same embeddings."""
        return torch.stack([head(h) for head in self.heads])


def perceptron(widths: Sequence[int], activation: Activation, batch_norm: bool = False) -> Iterator[nn.Module]:
    """The layers of a multi-layer perceptron: Linear [BatchNorm] activation … Linear.

    ``widths`` runs from the inputs to the outputs; the last layer stays linear.
    """
    for inputs, outputs in pairwise(widths[:-1]):
        yield nn.Linear(inputs, outputs)
        if batch_norm:
            yield nn.BatchNorm1d(outputs)
        yield ACTIVATIONS[activation]()
    yield nn.Linear(widths[-2], widths[-1])


def vgg_blocks(
    image: tuple[int, int, int], channels: Sequence[int], batch_norm: bool = False
) -> tuple[list[nn.Module], int]:
    """The convolutional part of a VGG, and how many features come out of it.

    Two times Conv 3 × 3 (padded) [BatchNorm] ReLU, then 2 × 2 max pooling, for each of ``channels``; ``image`` is
    (channels, height, width). A side of one pixel is not pooled any further.
    """
    layers: list[nn.Module] = []
    incoming, height, width = image
    for filters in channels:
        for _ in range(2):
            layers.append(nn.Conv2d(incoming, filters, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(filters))
            layers.append(nn.ReLU())
            incoming = filters
        window = (min(2, height), min(2, width))
        layers.append(nn.MaxPool2d(window))
        height, width = height // window[0], width // window[1]
    return layers, incoming * height * width


_GROUPS = 8
_NORMS: dict[Norm, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(min(_GROUPS, channels), channels),
}


class _Block(nn.Module):
    """Two 3 × 3 convolutions with normalisation, beside a shortcut: the identity, or a 1 × 1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            _NORMS[norm](outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            _NORMS[norm](outputs),
        )
        same = inputs == outputs and stride == 1
        projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut = nn.Identity() if same else nn.Sequential(projection, _NORMS[norm](outputs))
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return y


def resnet18(channels: int, width: int, norm: Norm, outputs: int) -> nn.Sequential:
    """A ResNet-18 of ``width``, 2, 4 and 8 times ``width`` channels, for images of ``channels``, any height and width.

    As usual for images of 32 × 32 pixels, one 3 × 3 convolution without pooling stands at the beginning.
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), _NORMS[norm](width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        filters = width * 2**stage
        layers += [_Block(inputs, filters, 2 if stage else 1, norm), _Block(filters, filters, 1, norm)]
        inputs = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, outputs))


_SPREAD = 0.01
"""The standard deviation of initial vectors, as programs of DeepFM have it."""


class OneHot(nn.Module):
    """Put a column for each category of the training rows in the place of its codes: (b, features) to (b, ``width``).

    Code 0 is a row of zeros.
    """

    def __init__(self, cardinalities: Sequence[int]) -> None:
        super().__init__()
        self.cardinalities = tuple(cardinalities)
        self.width = sum(count - 1 if count else 1 for count in cardinalities)

    def forward(self, x: Tensor) -> Tensor:
        """Return the wider table."""
        pieces = []
        for index, count in enumerate(self.cardinalities):
            column, codes = x[:, index : index + 1], torch.arange(1, max(1, count), dtype=x.dtype, device=x.device)
            pieces.append((column == codes).to(x.dtype) if count else column)
        return torch.cat(pieces, dim=1)


class FieldVectors(nn.Module):
    """A vector for each feature: (b, features) to (b, features, ``width``), numbers first.

    That of a category is a row of a table, zero for code 0; that of a number x is x times a trained vector.
    """

    def __init__(self, cardinalities: Sequence[int], width: int) -> None:
        super().__init__()
        numeric = [column for column, count in enumerate(cardinalities) if not count]
        coded = [column for column, count in enumerate(cardinalities) if count]
        starts = torch.tensor([0, *(cardinalities[column] - 1 for column in coded)]).cumsum(0)
        for name, values in (("numeric", numeric), ("coded", coded), ("starts", starts[:-1])):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.int64), persistent=False)
        self.numbers = Parameter(_SPREAD * torch.randn(len(numeric), width)) if numeric else None
        self.categories = nn.Embedding(int(starts[-1]) + 1, width, padding_idx=0) if coded else None
        if self.categories is not None:
            self.categories.weight.data *= _SPREAD

    def forward(self, x: Tensor) -> Tensor:
        """Look the vectors up."""
        vectors = []
        if self.numbers is not None:
            vectors.append(x[:, self.get_buffer("numeric"), None] * self.numbers)
        if self.categories is not None:
            codes = x[:, self.get_buffer("coded")].long()
            vectors.append(self.categories(torch.where(codes > 0, codes + self.get_buffer("starts"), 0)))
        return torch.cat(vectors, dim=1)


class DeepFm(nn.Module):
    """h = w x + P Σ_{j<k} (v_j x_j) ∘ (v_k x_k) + MLP(v x) + b, with the same vectors v in both (Guo et al. 2017).

    The paper adds each product up to one number (Eq. 2); P maps it to the embedding. The MLP sees all vectors.
    """

    def __init__(self, cardinalities: Sequence[int], factors: int, hidden: Sequence[int], embedding: int) -> None:
        super().__init__()
        self.linear = FieldVectors(cardinalities, embedding)
        self.vectors = FieldVectors(cardinalities, factors)
        self.pairs = nn.Linear(factors, embedding, bias=False)
        self.deep = nn.Sequential(*perceptron((len(cardinalities) * factors, *hidden, embedding), "relu"))

    def forward(self, x: Tensor) -> Tensor:
        """Compute h, (b, embedding)."""
        v = self.vectors(x)
        products = (v.sum(1).square() - v.square().sum(1)) / 2
        h: Tensor = self.linear(x).sum(1) + self.pairs(products) + self.deep(v.flatten(1))
        return h


class WideDeep(nn.Module):
    """h = w x + MLP(numbers, vectors of categories) + b (Cheng et al. 2016), without hand-made products of columns."""

    def __init__(self, cardinalities: Sequence[int], factors: int, hidden: Sequence[int], embedding: int) -> None:
        super().__init__()
        counts = [count for count in cardinalities if count]
        self.wide = FieldVectors(cardinalities, embedding)
        self.vectors = FieldVectors(counts, factors) if counts else None
        inputs = len(cardinalities) - len(counts) + len(counts) * factors
        self.deep = nn.Sequential(*perceptron((inputs, *hidden, embedding), "relu"))

    def forward(self, x: Tensor) -> Tensor:
        """Compute h, (b, embedding)."""
        inputs = x[:, self.wide.get_buffer("numeric")]
        if self.vectors is not None:
            inputs = torch.cat([inputs, self.vectors(x[:, self.wide.get_buffer("coded")]).flatten(1)], dim=1)
        h: Tensor = self.wide(x).sum(1) + self.deep(inputs)
        return h
