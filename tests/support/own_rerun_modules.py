"""Client models that do not repeat themselves, as users may write them by mistake. Named by path."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch import Tensor, nn

SEEN: list[Any] = []
"""Grows from run to run, and is empty in a new process: no checkpoint holds it."""


class Remembering(nn.Linear):
    """A linear model whose output depends on how many batches this process has seen before."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int) -> None:
        super().__init__(math.prod(feature_shape), embedding)

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append(len(x))
        return super().forward(x.flatten(1)) * (1 + 1e-3 * len(SEEN))


class Shaken(Remembering):
    """A linear model with noise of the machine's own."""

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.tensor([*os.urandom(x.shape[0])], dtype=x.dtype)[:, None] / 1000
        return nn.Linear.forward(self, x.flatten(1)) + noise
