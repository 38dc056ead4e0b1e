"""The effect of rounding on predictions of a trained server, compared with Thm 1 (Qiu et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from vflsim.attacks.base import Attack, AttackedRun, Measured, logits_of, need_classes, share
from vflsim.codecs.round import Round
from vflsim.codecs.rounding_error import RoundingError, rounding_error, sampled_rounding_error
from vflsim.learning.tasks import PredictionTask
from vflsim.streams import SHARED, generator
from vflsim.trained import Uploads
from vflsim.vocabulary.quantities import Count

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
        own = None if uploads.own is None else uploads.own[row : row + 1]
        self._uploads = replace(uploads, own=own)
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
