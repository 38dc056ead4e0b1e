"""Servers whose predictions can be worked out by hand, and uploads for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vflsim.codecs import Codec
from vflsim.setting import ServerPrediction
from vflsim.trained import Uploads, Wiring

torch.set_num_threads(1)
DTYPE = torch.float64


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=DTYPE, generator=torch.Generator().manual_seed(seed))


def net(widths: Sequence[int], seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A perceptron with random weights; of two widths a linear layer."""
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        layer = nn.Linear(inputs, outputs).to(DTYPE)
        layer.weight.data, layer.bias.data = random(outputs, inputs, seed=seed + number), random(outputs, seed=seed + 9)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1]).eval()


def uploads(server: nn.Module, sent: dict[int, Tensor], labels: Tensor, codec: Codec | None = None) -> Uploads:
    """Uploads for a server that takes the embeddings side by side."""
    prediction = ServerPrediction(lambda parts: server(torch.cat([*parts], 1)), None, (server,))
    return Uploads(sent, None, labels, Wiring(codec, 0), prediction)


def binary_labels(logits: Tensor) -> Tensor:
    """The labels for which every row is right."""
    return (logits > 0).to(DTYPE)


class Rounding(Codec):
    """Integers, as wide as before."""

    kind: Literal["rounding"] = "rounding"
    elementwise: ClassVar[bool] = True

    def payload_bytes(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        raise NotImplementedError

    def pack(self, x: Tensor) -> bytes:
        raise NotImplementedError

    def unpack(self, payload: bytes, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        raise NotImplementedError

    def through(self, x: Tensor) -> Tensor:
        return x.round()
