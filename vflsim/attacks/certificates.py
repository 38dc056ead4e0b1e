"""Bounds by theorems, on trained models: radii by randomised smoothing, the effect of rounding.

Sources: Cohen et al. 2019; Qiu et al. 2024, Thms 1 and 2, Table 5.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
    binomial_low,
    classes_of,
    logits_of,
    need_classes,
    share,
    truth_of,
)
from vflsim.finished import PredictionTask, Round, RoundingError, Uploads, rounding_error, sampled_rounding_error
from vflsim.protocol import SHARED, Count, Floats, PositiveNumber, Quantity, generator

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
