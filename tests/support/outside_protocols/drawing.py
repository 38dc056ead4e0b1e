"""An aggregate and a loss that draw random numbers from global generators."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from outside_protocols.two_trip import Active, Party, TwoTrip
from vflsim.protocol import SERVER, Aggregate, Batch, Learners, Setting

Source = Literal["torch", "numpy", "python"]
UNIFORM: dict[Source, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),
    "python": random.random,
}
"""A random number in [0, 1) of each global generator."""


class RandomWeights(Aggregate):
    """A weighted sum of the embeddings; every call draws the weights anew."""

    kind: Literal["random_weights"] = "random_weights"
    source: Source = "torch"

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        here = [each for each in embeddings if each is not None]
        return torch.stack([each * (0.5 + UNIFORM[self.source]()) for each in here]).sum(0)


class RandomLoss(TwoTrip):
    """Two trips, with a loss that every party's step scales at random."""

    kind: Literal["random_loss"] = "random_loss"  # type: ignore[assignment]
    source: Source = "torch"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        clients = {client: Party(setting, client, seed) for client in setting.clients}
        return Learners(Scaling(setting, SERVER, seed, self.source), clients)


class Scaling(Active):
    """The active party, whose loss has a random factor."""

    def __init__(self, setting: Setting, party: int, seed: int, source: Source) -> None:
        super().__init__(setting, party, seed)
        self.source = source

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return super().loss(prediction, batch) * (0.5 + UNIFORM[self.source]())
