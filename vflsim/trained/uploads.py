"""What the server gets for some rows, and what it predicts when a client sends something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vflsim.codecs import Codec
from vflsim.setting import ServerPrediction
from vflsim.streams import stream_key


class ThroughCodec(torch.autograd.Function):
    """A tensor on its way through a codec; the gradient comes back as the codec says, by default straight through."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, codec: Codec) -> Tensor:
        """Return what arrives."""
        ctx.save_for_backward(h)
        ctx.codec = codec
        return codec.through(h)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        """Convert the gradient of what arrives to that of what was sent."""
        (h,) = ctx.saved_tensors
        return ctx.codec.backward(gradients[0], h), None


@dataclass(frozen=True, slots=True)
class Wiring:
    """The way of embeddings to the server: through a codec, or, without one, as they are.

    A codec's random numbers follow from (seed, client, place): messages at other places have others.
    """

    codec: Codec | None
    seed: int

    def arrive(self, client: int, h: Tensor, place: str = "") -> Tensor:
        """Return what arrives of one message, (rows, width); differentiable."""
        if self.codec is None:
            return h
        key = stream_key(self.seed, client, f"codec.attack/{place}") & 2**64 - 1
        arrived: Tensor = ThroughCodec.apply(h, self.codec.keyed(key))  # type: ignore[no-untyped-call]
        return arrived

    def arrive_many(self, client: int, h: Tensor, place: str) -> Tensor:
        """Return what arrives of several messages, (messages, rows, width), one after the other: (… · rows, width)."""
        if self.codec is None or self.codec.elementwise:
            return self.arrive(client, h.flatten(0, 1), place)
        return torch.cat([self.arrive(client, each, f"{place}/{number}") for number, each in enumerate(h)])


@dataclass(frozen=True)
class Uploads:
    """The uploads of some rows: by client what is ``sent``, (rows, width), and the labels of the rows.

    ``own`` is the server's own embedding of these rows, None if it holds no features.
    """

    sent: Mapping[int, Tensor]
    own: Tensor | None
    labels: Tensor
    wiring: Wiring
    prediction: ServerPrediction

    @cached_property
    def received(self) -> dict[int, Tensor]:
        """What arrives of ``sent``, by client."""
        return {client: self.wiring.arrive(client, h) for client, h in self.sent.items()}

    def predict(self, received: Mapping[int, Tensor]) -> Tensor:
        """Return the server's prediction for the embeddings of all clients, (k · rows, outputs), differentiably.

        The embeddings may be those of all rows k times in a row: (k · rows, width) each.
        """
        parts = [received[client] for client in self.sent]
        if self.own is not None:
            times = len(parts[0]) // len(self.own) if parts else 1
            parts.insert(0, self.own.repeat(times, 1))
        return self.prediction.predict(parts)
