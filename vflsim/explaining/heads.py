"""The models of a run with linear heads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vflsim.learning.data.loaded import LoadedData
from vflsim.protocols.defaults import heads_of
from vflsim.results.read import StoredRun
from vflsim.scenario.models import Scenario
from vflsim.timing.floats import Floats
from vflsim.trained import TrainedModels


class HeadedModels(TrainedModels):
    """Trained models whose prediction is Σ_k h^k W_k; ``heads`` has W_k, (d_f, d_c), of every participant.

    Raises ``ValueError`` if clients have no linear heads, and ``ResultsError`` as ``TrainedModels`` does.
    """

    def __init__(self, run: StoredRun, scenario: Scenario, data: LoadedData) -> None:
        super().__init__(run, scenario, data)
        self.heads: Mapping[int, Tensor] = heads_of(self.protocol, self.setting, self.learners)

    def norms(self) -> Floats:
        """Return the Frobenius norm of every participant's head, (participants,)."""
        return np.array([float(torch.linalg.norm(head.double())) for head in self.heads.values()])

    def embedding(self, client: int, rows: Tensor) -> Tensor:
        """Compute h^k of some test rows, (rows, d_f)."""
        model = self.learners.clients[client].embedding
        model.module.eval()
        with torch.no_grad():
            h: Tensor = model(self.data.features[client - 1]["test"][rows])
        return h
