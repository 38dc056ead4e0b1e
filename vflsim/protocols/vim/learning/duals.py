"""The variables λ and z that ADMM keeps for every training row."""

from __future__ import annotations

from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.tasks import PredictionTask
from vflsim.protocols.vim.learning.proximal import proximal


class Duals:
    """λ_j and z_j of every training row j, in the ``kept`` tensors of ``server``; zeros at first (d_c wide)."""

    def __init__(self, server: PartyLearner, task: PredictionTask, outputs: int, rho: float) -> None:
        self._server, self._task, self._shape, self._rho = server, task, (len(server.labels("train")), outputs), rho

    def update(self, batch: Batch, a: Tensor) -> tuple[Tensor, Tensor]:
        """Update z and λ of the rows of ``batch`` for predictions ``a`` (b, d_c), and return them: (z, λ).

        z by VIM Eq. 6 (17), then λ ← λ + ρ (a − z) by Eq. 7 (18). Raises ``NonFiniteError``.
        """
        kept = self._server.kept
        for name in ("duals", "z"):
            if name not in kept:
                kept[name] = a.new_zeros(self._shape)
        rows = batch.tensor(a.device)
        duals = kept["duals"][rows]
        z = proximal(self._task, self._server.y(batch), a, duals, self._rho, start=kept["z"][rows])
        duals = duals + self._rho * (a - z)
        kept["duals"][rows], kept["z"][rows] = duals, z
        return z, duals
