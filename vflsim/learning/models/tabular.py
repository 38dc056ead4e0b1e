"""Networks of tables with categorical columns: DeepFM, Wide & Deep, and one-hot columns for the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from vflsim.learning.models.layers import perceptron

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
