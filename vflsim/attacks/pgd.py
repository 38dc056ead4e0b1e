"""Projected gradient descent on an uploaded embedding (Madry et al. 2018; Qiu et al. 2024, Table 4)."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Annotated, ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured, OneOrEach, classes_of, need_classes, share, total_loss, truth_of
from vflsim.attacks.probing import AttackOfClients
from vflsim.finished import PredictionTask, Uploads
from vflsim.protocol import Count, PositiveNumber, generator, party_name

Norm = Literal["linf", "l2"]


@final
class Pgd(AttackOfClients):
    """One client perturbs its own upload to raise the loss; it knows the server's model and all embeddings.

    Each step goes up the gradient of the loss, and back into the ball of radius ω around the unperturbed embedding. It
    is taken at what arrives, after the run's codec.
    """

    kind: Literal["pgd"] = "pgd"
    omega: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = (1.0, 2.0)
    """ω, the radii of the ball."""
    step: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = (0.1, 1.0)
    """s, the lengths of a step, in the same norm."""
    steps: Count = 40
    """How many steps it takes."""
    norm: Norm = "linf"
    """The norm of ball and steps: the largest element (``linf``), or the Euclidean one (``l2``)."""
    iterate: Literal["received", "sent"] = "received"
    """What the client steps from: what has arrived of the step before, as in the paper, or what it had sent.
    ``sent`` adds up steps that a codec undoes one by one."""
    client: OneOrEach = "each"
    """The malicious client."""
    rows: Count = 500
    """Test rows that it attacks, at most."""
    title: ClassVar[str] = "PGD on one client's upload"
    measures: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy",
        "preserved_accuracy": "preserved accuracy",
        "success": "attack success",
        "largest": "largest perturbation that arrived",
    }
    drawn: ClassVar[tuple[str, ...]] = ("success",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"success": (0, 1)}
    note: ClassVar[str] = (
        "attack success: the share of rows that were classified correctly and are not any more; its chance level is "
        "that of one random step to the edge of the ball"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack with each malicious client, ω and s."""
        task, uploads = attacked.models.data.task, attacked.uploads(self.rows)
        need_classes(task)
        truth = truth_of(uploads.labels, task)
        clean = classes_of(uploads.predict(uploads.received), task) == truth
        for client, omega in product(self.clients(attacked), self.omega):
            bits = generator(attacked.run.seed, client, "attack.pgd")
            noise = torch.from_numpy(bits.standard_normal(tuple(uploads.sent[client].shape)))
            edge = omega * direction(noise.to(uploads.sent[client].dtype), self.norm)
            blind = self._classes(uploads, client, uploads.sent[client] + edge, task) == truth
            chance = share(~blind[clean])
            for step in self.step:
                moved = self.perturbed(uploads, client, omega, step, task)
                kept = classes_of(uploads.predict({**uploads.received, client: moved}), task) == truth
                arrived = lengths(moved - uploads.received[client], self.norm)
                setting = {"omega": omega, "step": step}
                for measure, values in (
                    ("accuracy", share(clean)),
                    ("preserved_accuracy", share(kept)),
                    ("success", (*share(~kept[clean]), *chance)),
                    ("largest", (float(arrived.max()),)),
                ):
                    value, *rest = values
                    yield Measured(measure, value, party_name(client), setting, *rest)

    def _classes(self, uploads: Uploads, client: int, sent: Tensor, task: PredictionTask) -> Tensor:
        received = uploads.wiring.arrive(client, sent, "pgd.chance")
        return classes_of(uploads.predict({**uploads.received, client: received}), task)

    def perturbed(self, uploads: Uploads, client: int, omega: float, step: float, task: PredictionTask) -> Tensor:
        """Return the received upload of ``client`` after its last step, (rows, width)."""

        def loss(received: Tensor) -> Tensor:
            return total_loss(uploads.predict({**uploads.received, client: received}), uploads.labels, task)

        def arrive(h: Tensor, number: int) -> Tensor:
            return uploads.wiring.arrive(client, h, f"pgd/{number}")

        if self.iterate == "received":
            return ascend(loss, uploads.received[client], arrive, omega, step, self.steps, self.norm)

        def loss_of_sent(h: Tensor) -> Tensor:
            return loss(arrive(h, self.steps))

        sent = ascend(loss_of_sent, uploads.sent[client], lambda h, _: h, omega, step, self.steps, self.norm)
        return arrive(sent, self.steps)


def ascend(
    loss: Callable[[Tensor], Tensor],
    start: Tensor,
    arrive: Callable[[Tensor, int], Tensor],
    omega: float,
    step: float,
    steps: int,
    norm: Norm,
) -> Tensor:
    """Take ``steps`` steps up the gradient of ``loss``, within ``omega`` of ``start`` row by row; return the last one.

    ``arrive`` takes the end of a step and its number, and returns where the next step starts: within the ball, unless
    ``arrive`` leaves it.
    """
    at = start
    for number in range(steps):
        leaf = at.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(leaf), leaf)
        with torch.no_grad():
            at = arrive(start + projected(at + step * direction(slope, norm) - start, omega, norm), number)
    return at.detach()


def direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the steepest ascent of length 1 of every row, in this norm; 0 where the gradient is 0."""
    if norm == "linf":
        return gradient.sign()
    length = gradient.norm(dim=1, keepdim=True)
    return torch.where(length > 0, gradient / length.clamp(min=torch.finfo(gradient.dtype).tiny), 0.0)


def projected(change: Tensor, omega: float, norm: Norm) -> Tensor:
    """Return the nearest point to each row in the ball of radius ``omega`` around 0."""
    if norm == "linf":
        return change.clamp(-omega, omega)
    return change * (omega / lengths(change, norm).clamp(min=omega))[:, None]


def lengths(change: Tensor, norm: Norm) -> Tensor:
    """Return the length of every row."""
    return change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
