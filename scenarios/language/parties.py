"""Models of parties that hold text: a small frozen transformer with LoRA adapters, and the server's model above it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDING = 0
"""The token that fills short texts."""


class Lora(nn.Module):
    """A frozen linear map and a trained one of low rank beside it: y = W x + (α/r) B A x (Hu et al. 2022, §4.1).

    A is drawn and B is zero, so an untrained adapter changes nothing.
    """

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float, draws: torch.Generator) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, alpha / rank
        self.a = nn.Parameter(_normal((rank, frozen.in_features), frozen.in_features, draws))
        self.b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        y: Tensor = self.frozen(x) + self.scale * (x @ self.a.T) @ self.b.T
        return y


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation and beside a shortcut; adapters at queries and values."""

    def __init__(self, width: int, heads: int, rank: int, alpha: float, draws: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values, self.out = (_linear(width, width, draws) for _ in range(4))
        self.up, self.down = _linear(width, 4 * width, draws), _linear(4 * width, width, draws)
        self.requires_grad_(False)
        self.queries, self.values = (Lora(each, rank, alpha, draws) for each in (self.queries, self.values))

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """(rows, tokens, width) → the same shape; no token attends to one that is not ``present`` (rows, tokens)."""
        normed = self.before_attention(x)
        q, k, v = (self._by_head(each(normed)) for each in (self.queries, self.keys, self.values))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=present[:, None, None, :])
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(F.relu(self.up(self.before_perceptron(x))))
        return y

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Reader(nn.Module):
    """A frozen transformer over the tokens of a text; adapters and the map to the embedding are trained.

    Its features are the numbers of the tokens, one column a position; 0 is padding. The frozen weights are drawn from
    ``seed``, alike at all parties, as a published model is. To use one, replace ``words``, ``places`` and ``blocks``.
    """

    def __init__(
        self,
        feature_shape: tuple[int, ...],
        embedding: int,
        vocabulary: int,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        rank: int = 4,
        alpha: float = 8,
        seed: int = 0,
    ) -> None:
        super().__init__()
        draws, (length,) = torch.Generator().manual_seed(seed), feature_shape
        self.words = nn.Embedding.from_pretrained(_normal((vocabulary, width), 1, draws), freeze=True)
        self.places = nn.Embedding.from_pretrained(_normal((length, width), 1, draws), freeze=True)
        self.blocks = nn.ModuleList(Block(width, heads, rank, alpha, draws) for _ in range(layers))
        self.last = nn.Linear(width, embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, tokens) → (rows, embedding): the mean over the tokens that are no padding."""
        tokens = x.round().long().clamp(PADDING, self.words.num_embeddings - 1)
        present = tokens != PADDING
        present = present | ~present.any(1, keepdim=True)  # a text without a word has its padding
        state = self.words(tokens) + self.places.weight
        for block in self.blocks:
            state = block(state, present)
        weight = present.to(state.dtype).unsqueeze(2)
        h: Tensor = self.last((state * weight).sum(1) / weight.sum(1))
        return h


def _linear(inputs: int, outputs: int, draws: torch.Generator) -> nn.Linear:
    linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # draws nothing of the global generator
    with torch.no_grad():
        linear.weight.copy_(_normal((outputs, inputs), inputs, draws))
        linear.bias.zero_()
    return linear


def _normal(shape: tuple[int, ...], inputs: int, draws: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draws) / math.sqrt(inputs)
