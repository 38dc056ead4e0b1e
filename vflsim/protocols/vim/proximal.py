"""The z-step of ADMM, an exact minimum for every sample (VIM Eq. 6, 17); and the λ and z that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.tasks import PredictionTask
from vflsim.vocabulary.on_demand import Tensor, torch

Solve: TypeAlias = Callable[[Tensor], Tensor]
"""Maps g to (∇²ℓ + ρ I)⁻¹ g, row by row."""
MOST_STEPS = 200
_TOLERANCE, _PRECISION = 1e-11, 1e-15
"""Tolerances of ‖gradient‖: absolute, and relative to the terms whose difference it is."""


def proximal(task: PredictionTask, target: Tensor, a: Tensor, duals: Tensor, rho: float, start: Tensor) -> Tensor:
    """Return z = argmin_z ℓ(z; y) − λᵀz + ρ/2 ‖a − z‖² for every row: all are (rows, d_c) but the task's ``target``.

    Newton's method from ``start``, with steps halved until the gradient ∇ℓ(z) − λ + ρ (z − a) gets shorter. The problem
    is ρ-strongly convex, so this converges; it ends at the precision of float64, in which it computes. The result has
    the dtype of ``a``. Raises ``NonFiniteError`` for input that is not finite.
    """
    terms, c = _TERMS[task.name], rho * a.double() + duals.double()
    if not torch.isfinite(c).all():
        raise NonFiniteError("the clients' predictions are not finite")
    z, y = start.double().clone(), target if target.dtype == torch.int64 else target.double()
    enough = _TOLERANCE + _PRECISION * c.norm(dim=1)

    def gradient(z: Tensor, rows: Tensor) -> tuple[Tensor, Solve]:
        slope, solve = terms(z, y[rows], rho)
        return slope + rho * z - c[rows], solve

    rows = torch.arange(len(z), device=z.device)
    for _ in range(MOST_STEPS):
        g, solve = gradient(z[rows], rows)
        length = g.norm(dim=1)
        open_ = length > enough[rows]
        if not open_.any():
            break
        step, size, moved = solve(g), torch.ones_like(length), z[rows]
        better = ~open_  # rows that need no step, or have taken one
        while (trying := ~better & (size > 1e-12)).any():
            tried = z[rows[trying]] - size[trying, None] * step[trying]
            shorter = gradient(tried, rows[trying])[0].norm(dim=1) <= (1 - 0.1 * size[trying]) * length[trying]
            taken = trying.nonzero()[:, 0][shorter]
            moved[taken], better[taken] = tried[shorter], True
            size[~better] /= 2
        z[rows] = moved
        rows = rows[open_ & better]  # rows that no step improves have reached the end of the precision
    return z.to(a.dtype)


def _cross_entropy(z: Tensor, y: Tensor, rho: float) -> tuple[Tensor, Solve]:
    """∇ℓ = p − e_y and ∇²ℓ = diag(p) − p pᵀ, of rank one beside a diagonal: Sherman and Morrison's formula."""
    p = torch.softmax(z, dim=1)
    slope = p.clone()
    slope[torch.arange(len(y), device=y.device), y] -= 1
    diagonal = p + rho

    def solve(g: Tensor) -> Tensor:
        along = (p * g / diagonal).sum(1, keepdim=True) / (p * rho / diagonal).sum(1, keepdim=True)
        return (g + p * along) / diagonal

    return slope, solve


def _logistic(z: Tensor, y: Tensor, rho: float) -> tuple[Tensor, Solve]:
    p = torch.sigmoid(z)
    return p - y, lambda g: g / (p * (1 - p) + rho)


def _square(z: Tensor, y: Tensor, rho: float) -> tuple[Tensor, Solve]:
    return 2 * (z - y), lambda g: g / (2 + rho)


_TERMS: dict[str, Callable[[Tensor, Tensor, float], tuple[Tensor, Solve]]] = {
    "multiclass": _cross_entropy,
    "binary": _logistic,
    "regression": _square,
}
"""Gradient and Newton step of each task's loss of one sample."""


def lagrangian(o: Tensor, duals: Tensor, target: Tensor, rho: float) -> Tensor:
    """Return the mean over the rows of λᵀo + ρ/2 ‖target − o‖² (VIM Eq. 8, 10, 20, 21); differentiable in ``o``."""
    return ((duals * o).sum() + rho / 2 * (target - o).square().sum()) / len(o)


@dataclass(frozen=True, slots=True)
class ByLogits:
    """∂/∂o of ``lagrangian``, of one client or of several side by side: (…, rows, d_c)."""

    rho: float

    def __call__(self, o: Tensor, duals: Tensor, target: Tensor) -> Tensor:
        """Return (λ + ρ (o − target)) / rows."""
        return (duals + self.rho * (o - target)) / o.shape[-2]


@dataclass(frozen=True, slots=True)
class ByEmbedding:
    """∂/∂h of ``lagrangian`` for o = h W, with the head W (…, d_f, d_c)."""

    rho: float

    def __call__(self, h: Tensor, duals: Tensor, target: Tensor, head: Tensor) -> Tensor:
        """Return ∂/∂o Wᵀ."""
        return ByLogits(self.rho)(h @ head, duals, target) @ head.mT


class Duals:
    """λ_j and z_j of every training row j, in the ``kept`` tensors of ``server``; zeros at first (d_c wide)."""

    def __init__(self, server: PartyLearner, task: PredictionTask, outputs: int, rho: float) -> None:
        self._server, self._task, self._shape, self._rho = server, task, (len(server.labels("train")), outputs), rho

    def update(self, batch: Batch, a: Tensor) -> tuple[Tensor, Tensor]:
        """Update z and λ of the rows of ``batch`` for predictions ``a`` (b, d_c), and return them: (z, λ).

        z by VIM Eq. 6 (17), then λ ← λ + ρ (a − z) by Eq. 7 (18). Raises ``NonFiniteError``.
        """
        state = self._server.kept
        for name in ("duals", "z"):
            if name not in state:
                state[name] = a.new_zeros(self._shape)
        rows = batch.tensor(a.device)
        duals = state["duals"][rows]
        z = proximal(self._task, self._server.y(batch), a, duals, self._rho, start=state["z"][rows])
        duals = duals + self._rho * (a - z)
        state["duals"][rows], state["z"][rows] = duals, z
        return z, duals
