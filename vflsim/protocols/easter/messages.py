"""The messages of EASTER, besides embeddings and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vflsim.world.messages import Message


@dataclass(slots=True, eq=False)
class GlobalEmbedding(Message):
    """E, the mean of all parties' embeddings of a batch, shape (batch, embedding)."""

    kind: ClassVar[str] = "global_embedding"
    ordered: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class Prediction(Message):
    """A passive party's prediction R_k = p(θ_k, E) for a batch, shape (batch, outputs)."""

    kind: ClassVar[str] = "prediction"
    ordered: ClassVar[bool] = True
