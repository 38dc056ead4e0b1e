"""What a party holds: features, labels, and the settings of its operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vflsim.learning.batches import CPU, Split
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.tasks import PredictionTask


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyParts:
    """The holdings of one party, and the settings of its operations.

    ``features`` maps a split to a tensor (rows, *feature_shape), ``labels`` to the task's target tensor; None where the
    party holds none. ``batch`` is the rows of a full mini-batch. Weights and noise are drawn from ``seed``.
    ``mechanism`` protects what the party uploads; then, if it is a client of ``blinded_sum``, it blinds that.
    """

    party: int
    dtype: torch.dtype
    batch: int
    seed: int = 0
    device: torch.device = CPU
    features: Mapping[Split, Tensor] | None = None
    labels: Mapping[Split, Tensor] | None = None
    task: PredictionTask | None = None
    mechanism: Mechanism | None = None
    blinded_sum: BlindedSum | None = None
