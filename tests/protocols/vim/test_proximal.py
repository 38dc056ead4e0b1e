"""The z-step: the minimum of a strongly convex function for every sample."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from vflsim.errors import NonFiniteError
from vflsim.learning.tasks import BINARY, MULTICLASS, REGRESSION, PredictionTask
from vflsim.protocols.vim.admm import ByEmbedding, ByLogits, lagrangian, proximal

ROWS, CLASSES = 40, 10
TASKS: dict[str, PredictionTask] = {"multiclass": MULTICLASS, "binary": BINARY, "regression": REGRESSION}
tasks = pytest.mark.parametrize("task", TASKS)
rhos = pytest.mark.parametrize("rho", [0.001, 0.05, 2.0, 100.0])


def problem(task: str, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Targets, predictions and duals."""
    generator = torch.Generator().manual_seed(seed)
    columns = CLASSES if task == "multiclass" else 1
    a, duals = (scale * torch.randn(ROWS, columns, generator=generator, dtype=torch.float64) for _ in range(2))
    if task == "multiclass":
        return torch.randint(CLASSES, (ROWS,), generator=generator), a, duals
    y = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
    return (y > 0).double() if task == "binary" else y, a, duals


def objective(task: str, z: Tensor, y: Tensor, a: Tensor, duals: Tensor, rho: float) -> Tensor:
    """Eq. 6, summed over the rows: the loss is their mean."""
    return len(z) * TASKS[task].loss(z, y) - (duals * z).sum() + rho / 2 * (a - z).square().sum()


def gradient(task: str, z: Tensor, *rest: Tensor | float) -> Tensor:
    z = z.clone().requires_grad_()
    (found,) = torch.autograd.grad(objective(task, z, *rest), z)
    return found


@pytest.mark.sampled(12)
@tasks
@rhos
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_gradient_vanishes(task: str, rho: float, scale: float) -> None:
    y, a, duals = problem(task, scale)
    for start in (torch.zeros_like(a), a, -a):
        z = proximal(TASKS[task], y, a, duals, rho, start)
        assert float(gradient(task, z, y, a, duals, rho).norm(dim=1).max()) <= 1e-10


@pytest.mark.sampled(3)
@tasks
@pytest.mark.parametrize("rho", [0.05, 2.0])
def test_it_is_what_l_bfgs_b_finds(task: str, rho: float) -> None:
    y, a, duals = problem(task)
    z = proximal(TASKS[task], y, a, duals, rho, torch.zeros_like(a))

    def value(flat: object) -> tuple[float, object]:
        at = torch.tensor(flat).reshape(a.shape)
        return float(objective(task, at, y, a, duals, rho)), gradient(task, at, y, a, duals, rho).numpy().ravel()

    found = minimize(value, a.numpy().ravel(), jac=True, method="L-BFGS-B",
                     options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000})  # fmt: skip
    assert torch.allclose(torch.tensor(found.x).reshape(a.shape), z, atol=1e-5)
    assert float(objective(task, z, y, a, duals, rho)) <= found.fun + 1e-10


def test_a_square_by_hand() -> None:
    """(z − 3)² − z + (1 − z)²: 2 (z − 3) − 1 + 2 (z − 1) = 0 at z = 9/4, with ρ = 2."""
    one = torch.ones(1, 1, dtype=torch.float64)
    assert float(proximal(REGRESSION, 3 * one, one, one, 2.0, 0 * one)) == pytest.approx(2.25, abs=1e-12)


@tasks
def test_the_new_dual_is_the_gradient_of_the_loss_at_z(task: str) -> None:
    """λ + ρ (a − z) = ∇ℓ(z), by the optimality condition: for classes no entry exceeds 1."""
    y, a, duals = problem(task, 3.0)
    z = proximal(TASKS[task], y, a, duals, 0.5, a).requires_grad_()
    (slope,) = torch.autograd.grad(len(z) * TASKS[task].loss(z, y), z)
    assert torch.allclose(duals + 0.5 * (a - z), slope, atol=1e-9)


def test_float32_stays_float32_and_is_as_exact_as_it_can_be() -> None:
    y, a, duals = problem("multiclass")
    exact = proximal(MULTICLASS, y, a, duals, 2.0, a)
    short = proximal(MULTICLASS, y, a.float(), duals.float(), 2.0, a.float())
    assert short.dtype == torch.float32
    assert float((short - exact).abs().max()) <= 1e-6


def test_what_is_not_finite_is_refused() -> None:
    y, a, duals = problem("binary")
    a[3] = float("nan")
    with pytest.raises(NonFiniteError, match="predictions are not finite"):
        proximal(BINARY, y, a, duals, 1.0, duals)


@pytest.mark.parametrize("clients", [None, 3])
def test_gradients_of_the_lagrangian_are_autograds_also_of_clients_side_by_side(clients: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    one, shapes = clients is None, [(6, 5), (6, 4), (6, 4), (5, 4)]
    every = [torch.randn(clients or 1, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    h, duals, target, head = (tensor[0] for tensor in every) if one else every
    by_h, by_o = ByEmbedding(0.7)(h, duals, target, head), ByLogits(0.7)(h @ head, duals, target)
    for n in range(clients or 1):
        leaf, matrix = every[0][n].clone().requires_grad_(), every[3][n]
        o = leaf @ matrix
        slope, by_logits = torch.autograd.grad(lagrangian(o, every[1][n], every[2][n], 0.7), [leaf, o])
        assert torch.allclose(by_h if one else by_h[n], slope, atol=1e-14)
        assert torch.allclose(by_o if one else by_o[n], by_logits, atol=1e-14)
