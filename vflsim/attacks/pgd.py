"""Projected gradient descent on an uploaded embedding (Madry et al. 2018; Qiu et al. 2024, Table 4)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, ClassVar, Literal, final

import numpy as np
import torch
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor

from vflsim.attacks.base import (
    Attack,
    AttackedRun,
    Measured,
    OneOrEach,
    binomial_low,
    classes_of,
    logits_of,
    need_classes,
    share,
    total_loss,
    truth_of,
)
from vflsim.attacks.probes import AttackOfClients
from vflsim.finished import PredictionTask, Round, RoundingError, Uploads, rounding_error, sampled_rounding_error
from vflsim.protocol import SHARED, Count, Floats, PositiveNumber, Quantity, generator, party_name

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


_ELEMENTS = 2**21
"""Elements of noisy embeddings that are held at a time."""


@final
class Smoothing(Attack):
    """The smoothed server, which takes the most likely class under N(0, σ²) on all uploads, before the codec.

    Its prediction for a row provably stays the same while all clients together move their embeddings by less than the
    row's radius, in the Euclidean norm of all embeddings side by side. The server as it is has no such proof.
    """

    kind: Literal["smoothing"] = "smoothing"
    sigma: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = (1.0,)
    """σ, the standard deviations of the noise."""
    guesses: Count = 100
    """n₀, the noisy samples of a row that choose its class."""
    samples: Count = 1000
    """n, the noisy samples of a row that bound how likely this class is."""
    alpha: Annotated[float, Quantity(above=0, at_most=0.5)] = 0.001
    """How often, at most, a row's radius is wrong."""
    rows: Count = 200
    """Test rows, at most."""
    title: ClassVar[str] = "certified radius by randomised smoothing"
    measures: ClassVar[Mapping[str, str]] = {
        "radius": "radius, mean",
        "radius_std": "radius, standard deviation",
        "certified": "certified rows",
        "certified_accuracy": "certified and right",
    }
    drawn: ClassVar[tuple[str, ...]] = ("radius", "certified_accuracy")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"radius": (0, math.inf), "certified_accuracy": (0, 1)}
    note: ClassVar[str] = (
        "radius: while all clients together move a row's embeddings by less than it (l2, before the codec), the "
        "smoothed server predicts the same class. Mean and standard deviation are over rows; a row that is not "
        "certified counts as 0"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Certify every row, for each σ."""
        task, uploads = attacked.models.data.task, attacked.uploads(self.rows)
        need_classes(task)
        truth = truth_of(uploads.labels, task)
        for sigma in self.sigma:
            bits = generator(attacked.run.seed, SHARED, "attack.smoothing")
            guesses = class_counts(uploads, task, sigma, self.guesses, bits, "guess")
            counts = class_counts(uploads, task, sigma, self.samples, bits, "count")
            guessed = guesses.argmax(1)
            hits = counts.gather(1, guessed[:, None])[:, 0]
            radii = certified_radii(hits.tolist(), self.samples, self.alpha, sigma)
            certified = torch.from_numpy(radii > 0)
            for measure, values in (
                ("radius", (float(radii.mean()),)),
                ("radius_std", (float(radii.std()),)),
                ("certified", share(certified)),
                ("certified_accuracy", share(certified & (guessed == truth))),
            ):
                value, *rest = values
                yield Measured(measure, value, "", {"sigma": sigma}, *rest)


def certified_radii(hits: Sequence[int], n: int, alpha: float, sigma: float) -> Floats:
    """Return R = σ Φ⁻¹(p_A) of every row whose class came up ``hits`` times of ``n``; 0 where it is not certified.

    p_A is the lower end of the Clopper-Pearson interval, p_B ≤ 1 − p_A: R is that of Thm 2 with p_B = 1 − p_A.
    """
    low = np.array([binomial_low(each, n, alpha) for each in hits])
    return np.where(low > 0.5, sigma * ndtri(np.maximum(low, 0.5)), 0.0)


def class_counts(
    uploads: Uploads, task: PredictionTask, sigma: float, number: int, bits: np.random.Generator, place: str
) -> Tensor:
    """Count the classes that the server predicts for ``number`` noisy samples of every row: (rows, classes), int64."""
    clients, rows = list(uploads.sent), len(uploads.labels)
    widths = [uploads.sent[client].shape[1] for client in clients]
    together = torch.cat([uploads.sent[client] for client in clients], 1)
    at_once = max(1, _ELEMENTS // together.numel())
    total: Tensor | None = None
    with torch.no_grad():
        for start in range(0, number, at_once):
            count = min(at_once, number - start)
            noise = torch.from_numpy(bits.standard_normal((count, *together.shape))).to(together.dtype)
            parts = torch.split(together + sigma * noise, widths, dim=2)
            received = {
                client: uploads.wiring.arrive_many(client, part, f"smoothing.{place}/{start}")
                for client, part in zip(clients, parts, strict=True)
            }
            prediction = uploads.predict(received)
            classes = max(2, prediction.shape[1])
            predicted = classes_of(prediction, task).view(count, rows)
            counts = torch.nn.functional.one_hot(predicted, classes).sum(0)
            total = counts if total is None else total + counts
    assert total is not None, "there is at least one sample"
    return total


_LINEAR = ("concat", "sum", "mean")
"""Aggregates that are linear in the embeddings: with a linear server, the second derivatives are 0."""


@final
class RoundingBound(Attack):
    """What rounding uploads does to the logit of a row's own class, and what Thm 1 says of it.

    With a linear server the first-order term is a proven bound. With any other server the remainder is the largest at
    sampled points: an estimate.
    """

    kind: Literal["rounding"] = "rounding"
    points: Count = 8
    """Points around a rounded embedding at which second derivatives are sampled."""
    rows: Count = 50
    """Test rows, at most."""
    title: ClassVar[str] = "what rounding changes, and Thm 1"
    measures: ClassVar[Mapping[str, str]] = {
        "moved": "change of the logit",
        "first_order": "first-order term",
        "remainder": "remainder",
        "within": "rows within the sum",
        "proven": "sum is a proven bound",
    }
    drawn: ClassVar[tuple[str, ...]] = ("moved", "first_order", "remainder")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(drawn, (0, math.inf))
    note: ClassVar[str] = (
        "means over rows of |g(x) − g(z)|, x sent and z rounded, of ½ Σ |∂g(z)| and of the remainder, g the logit of a "
        "row's own class. The sum is a proven bound (1) for a linear server, else an estimate (0)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Measure the rows whose embeddings have not saturated."""
        task, codec, uploads = attacked.models.data.task, attacked.models.codec, attacked.uploads(self.rows)
        need_classes(task)
        if not isinstance(codec, Round) or codec.noise is not None:
            raise ValueError("its uploads are not rounded, or have noise; allowed: codec: round")
        x, z = (torch.cat(list(each.values()), dim=1) for each in (uploads.sent, uploads.received))
        sound = (x - z).abs().amax(1) <= 0.5
        if not sound.all():
            attacked.remarks.append(f"{int((~sound).sum())} of {len(x)} rows saturate, and are left out of rounding")
        if not sound.any():
            raise ValueError("all rows saturate; allowed: bits: 16, or shorter embeddings")
        moved, bounds = [], []
        bits = generator(attacked.run.seed, SHARED, "attack.rounding")
        linear = attacked.models.setting.server_model.kind == "linear"
        linear = linear and attacked.models.setting.aggregate.kind in _LINEAR
        for row in sound.nonzero()[:, 0].tolist():
            around = torch.from_numpy(bits.uniform(-0.5, 0.5, (self.points, x.shape[1]))).to(z.dtype)
            logit = _Logit(uploads, row, task)
            with torch.no_grad():
                moved.append(float((logit(x[row]) - logit(z[row])).abs()))
            bounds.append(
                rounding_error(logit, z[row], 0.0) if linear else sampled_rounding_error(logit, z[row], z[row] + around)
            )
        yield from _measured(torch.tensor(moved, dtype=torch.float64), bounds)


class _Logit:
    """The logit of one row's own class as a function of all its embeddings side by side, (d,)."""

    def __init__(self, uploads: Uploads, row: int, task: PredictionTask) -> None:
        features = None if uploads.own is None else uploads.own[row : row + 1]
        self._uploads = replace(uploads, own=features)
        self._labels, self._task = uploads.labels[row : row + 1], task

    def __call__(self, y: Tensor) -> Tensor:
        sent = self._uploads.sent
        parts = torch.split(y[None], [h.shape[1] for h in sent.values()], dim=1)
        return logits_of(self._uploads.predict(dict(zip(sent, parts, strict=True))), self._labels, self._task)[0]


def _measured(moved: Tensor, bounds: list[RoundingError]) -> Iterator[Measured]:
    total = torch.tensor([bound.total for bound in bounds], dtype=torch.float64)
    yield Measured("moved", float(moved.mean()))
    yield Measured("first_order", sum(bound.first_order for bound in bounds) / len(bounds))
    yield Measured("remainder", sum(bound.remainder for bound in bounds) / len(bounds))
    value, low, high = share(moved <= total * (1 + 1e-5) + 1e-6)
    yield Measured("within", value, low=low, high=high)
    yield Measured("proven", float(all(bound.certified for bound in bounds)))
