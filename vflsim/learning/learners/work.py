"""The inputs of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.releases import Release

Rows: TypeAlias = Batch | Split
"""Which rows: a training batch's, or all of a split."""
ByEmbeddings: TypeAlias = Callable[..., Tensor]
"""Maps embeddings h (…, rows, width) and tensors received to ∂L/∂h, of one client or of several side by side.

It is hashable: clients with equal ones take their local steps together.
"""


@dataclass(slots=True)
class EmbedWork:
    """A client embeds ``rows``; ``release`` is what its embeddings go through before others see them."""

    place: int
    rows: Rows
    release: Release
    steps: bool = False
    """Whether a step along a gradient for these embeddings may follow."""


@dataclass(slots=True)
class StepWork:
    """A client steps along the gradient ``received`` for ``batch``."""

    place: int
    batch: Batch
    received: Handle[Tensor]


@dataclass(slots=True)
class LocalWork:
    """A client steps on ``batch``, on a function of its embeddings and of what it has ``received``."""

    place: int
    batch: Batch
    received: Sequence[Handle[Tensor]]
