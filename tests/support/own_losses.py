"""Losses of the tests' own, as users write them: some work, and some break their contract, each in one way."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vflsim.protocol import Loss, NonNegativeNumber, TaskName


class Entropy(Loss):
    """Cross entropy as vflsim has it."""

    kind: Literal["entropy"] = "entropy"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass",)

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(prediction, target)


class Margin(Loss):
    """Hinge loss of the own class against the best other one (Crammer and Singer)."""

    kind: Literal["margin"] = "margin"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass",)
    width: NonNegativeNumber = 1.0

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        own = prediction.gather(1, target[:, None])
        others = prediction.scatter(1, target[:, None], -torch.inf).max(1, keepdim=True).values
        return (self.width - own + others).clamp(min=0).mean()


class Total(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return len(target) * super().value(prediction, target)


class PerRow(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(prediction, target, reduction="none")


class PerRowOf(Entropy):
    """A loss for each row in batches of one size."""

    kind: Literal["per_row_of"] = "per_row_of"  # type: ignore[assignment]
    rows: int

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        rows = torch.nn.functional.cross_entropy(prediction, target, reduction="none")
        return rows if len(rows) == self.rows else rows.mean()


class Number(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Any:
        return super().value(prediction, target).item()


class Counts(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction.argmax(1) != target).to(prediction.dtype).mean()


class Below(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return super().value(prediction, target) - 10


class Random(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return super().value(prediction, target) * (1 + torch.rand(()).to(prediction.dtype))


class Writes(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        target.zero_()
        return super().value(prediction, target)


class Infinite(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return super().value(prediction, target) + 1 / prediction.detach().square().sum().mul(0)


class NoTask(Entropy):
    tasks: ClassVar[Any] = ("clustering",)


class Double(Entropy):
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return super().value(prediction.double(), target)
