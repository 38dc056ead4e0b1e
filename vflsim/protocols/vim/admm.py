"""VIMADMM: the exact z-step, the server with all heads, and clients that take local steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, check_loss, set_loss
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner, ServerParts, ServerStep
from vflsim.learning.tasks import PredictionTask
from vflsim.vocabulary.on_demand import Tensor, torch, without_gradients

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


StepT = TypeVar("StepT", bound=ServerStep)


def round_step(
    server: Any,
    ordered: Sequence[Received],
    step: StepT,
    promises: Sequence[Handle[Any]],
    run: Callable[[], None],
    cost: Callable[[], float] | None = None,
    batch: Batch | None = None,
) -> Operation[StepT]:
    """Make the operation of a round of a ``server``, on messages in client order; ``batch`` is theirs, if any."""
    batch, senders = batch or ordered[0].batch, [message.sender for message in ordered]
    operation: Operation[StepT] = server.operation(
        "server_step",
        run,
        step,
        inputs=[message.value for message in ordered],
        promises=(step.loss, *promises),
        rows=len(batch),
        cost=cost,
        commit=lambda: server.staleness.complete([(batch, senders)] if senders else [], step.loss),
        counts="round",
    )
    return operation


class HeadsServer(ServerLearner):
    """A server whose model is Σ_k h^k W_k: (b, Σ d_f) → (b, d_c) as one product.

    ``heads_step`` makes the operation of a round from what a subclass computes.
    """

    def heads_step(
        self,
        embeddings: Sequence[Received],
        step: StepT,
        promises: Sequence[Handle[Tensor]],
        run: Callable[[Batch, Tensor], None],
        products: int,
    ) -> Operation[StepT]:
        """Make a step on ``embeddings`` of one batch, in client order.

        ``run`` takes the batch and the embeddings side by side; ``products`` is how many products with all heads, of
        2 b Σ d_f d_c FLOPs each, it computes.
        """
        batch = embeddings[0].batch

        def on_joined() -> None:
            self.top.train()
            run(batch, self._joining.all_of([message.value for message in embeddings]))

        return round_step(
            self, embeddings, step, promises, on_joined, lambda: products * self.top.forward_flops(len(batch))
        )

    def loss_of(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of predictions for the rows of ``batch``."""
        return self.parts.task.loss(prediction, self.y(batch))


class HeadsFirstServer(HeadsServer):
    """Updates its heads, and then takes the gradients for its clients."""

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[ServerStep]:
        """Take one step of all W_k, and compute ∇_{h^k} ℓ of every client at the new heads (VIM Eq. 12–14).

        The loss is that before the step. Raises ``NonFiniteError`` when it runs.
        """
        ordered, step = in_client_order(embeddings), ServerStep()
        promised = [step.promise(message) for message in ordered]

        def run(batch: Batch, h: Tensor) -> None:
            loss = self.loss_of(self.top(h), batch)
            set_loss(step.loss, loss.detach())
            gradient, _ = self.top.gradients(loss, [])
            self.top.step(gradient)
            h.requires_grad_()
            stepped = self.loss_of(self.top(h), batch)
            check_loss(stepped.detach())
            (received,) = torch.autograd.grad(stepped, h)
            for handle, part in zip(promised, torch.split(received, list(self.parts.widths), dim=1), strict=True):
                handle.set(part)

        return self.heads_step(ordered, step, promised, run, products=4)


# --- parties ----------------------------------------------------------------------------------------------------------


ResidualHeads = Literal["new", "old"]


class AdmmStep(ServerStep):
    """The handles of a round's step: its loss, λ for all clients, and s^k and W_k for each client."""

    def __init__(self, duals: Handle[Tensor]) -> None:
        super().__init__()
        self.duals = duals
        self.residuals: dict[int, Handle[Tensor]] = {}
        self.heads: dict[int, Handle[Tensor]] = {}

    def variables_for(self, client: int) -> dict[str, Handle[Tensor]]:
        """Return the tensors of the message to ``client``."""
        head = {"head": self.heads[client]} if self.heads else {}
        return {"duals": self.duals, "residuals": self.residuals[client], **head}

    @property
    def promises(self) -> list[Handle[Any]]:
        """All handles except the loss."""
        return [self.duals, *self.residuals.values(), *self.heads.values()]


class AdmmServer(HeadsServer):
    """Holds the heads, and λ and z of every training row."""

    def __init__(self, parts: ServerParts, outputs: int, rho: float, residual_heads: ResidualHeads = "new") -> None:
        super().__init__(parts)
        self.outputs, self.rho, self.residual_heads = outputs, rho, residual_heads
        self.duals = Duals(self, parts.task, outputs, rho)
        self.width_of = dict(zip(parts.clients, parts.widths, strict=True))

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[Any]:
        """Update z, λ and all W_k for the rows of the round, and compute all s^k (VIM Eq. 6–9).

        W_k takes one step of ``training.server_optimizer`` on the mean over the rows of Eq. 8; ``residual_heads`` says
        whether s^k takes the heads after it, as Eq. 9 does, or those before. The loss is that of the
        predictions before it. FLOPs are those of products with the heads; the z-step has none. Raises
        ``NonFiniteError`` when it runs.
        """
        ordered = in_client_order(embeddings)
        rows = len(ordered[0].batch)
        step = AdmmStep(self.promise(rows, self.outputs))
        for message in ordered:
            step.residuals[message.sender] = self.promise(rows, self.outputs)
            step.heads[message.sender] = self.promise(self.width_of[message.sender], self.outputs)

        def run(batch: Batch, h: Tensor) -> None:
            a = self.top(h)
            set_loss(step.loss, self.loss_of(a.detach(), batch))
            z, duals = self.duals.update(batch, a.detach())
            parts = [] if self.residual_heads == "new" else self._outputs(h)
            gradient, _ = self.top.gradients(lagrangian(a, duals, z, self.rho), [])
            self.top.step(gradient)
            if self.residual_heads == "new":
                parts = self._outputs(h)
            self._send(step, parts, z, duals)

        products = {"new": 3, "old": 2}[self.residual_heads]  # predict, ∇W, and the parts of the new prediction
        return self.heads_step(ordered, step, step.promises, run, products)

    @without_gradients
    def _outputs(self, h: Tensor) -> list[Tensor]:
        widths = list(self.parts.widths)
        return [part @ head.T for part, head in zip(torch.split(h, widths, dim=1), self._heads(), strict=True)]

    def _heads(self) -> list[Tensor]:
        """Return the transposed W_k, (d_c, d_f) each: views of the weight."""
        (weight,) = self.top.vector_parts
        return list(torch.split(weight.detach(), list(self.parts.widths), dim=1))

    def _send(self, step: AdmmStep, outputs: list[Tensor], z: Tensor, duals: Tensor) -> None:
        """Set the handles: copies of the heads, which later steps change, and s^k = z − Σ_{i≠k} h^i W_i."""
        step.duals.set(duals)
        rest = z - torch.stack(outputs).sum(0)
        for client, head, output in zip(step.heads, self._heads(), outputs, strict=True):
            step.heads[client].set(head.T.clone())
            step.residuals[client].set(rest + output)


class AdmmClient(ClientLearner):
    """Embeds a batch, and takes local steps on it with the values that the server sent."""

    def __init__(self, parts: ClientParts, outputs: int, rho: float) -> None:
        super().__init__(parts)
        self.outputs, self._gradient = outputs, ByEmbedding(rho)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed a batch for the server: a handle of shape (batch, embedding). No gradient comes back for it."""
        return self.answer(batch, "embed")

    def client_step(self, batch: Batch, variables: Any) -> Operation[None]:
        """Take one local step on the mean over the rows of VIM Eq. 10, with the message's λ, s^k and W_k.

        The step recomputes the embeddings without the mechanism, which Alg. 1 applies to sent embeddings only. Raises
        ``NonFiniteError`` when it runs.
        """
        received = [variables[name] for name in ("duals", "residuals", "head")]
        flops = 4 * len(batch) * self.width * self.outputs
        return self.local_step(batch, self._gradient, received, flops)
