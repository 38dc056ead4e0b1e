"""A client's model with batch normalisation, as users may bring one: its buffers move in training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Normed(nn.Module):
    """Two linear layers, normalised in between."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int) -> None:
        super().__init__()
        self.first = nn.Linear(math.prod(feature_shape), 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, …) → (rows, embedding)."""
        h: Tensor = self.last(torch.relu(self.norm(self.first(x.flatten(1)))))
        return h


class Head(nn.Linear):
    """A server's model."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
