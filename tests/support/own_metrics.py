"""Metrics of the tests' own, as users write them: some work, and some break their contract, each in one way."""

from typing import Any, ClassVar, Literal

import torch

from vflsim.protocol import Better, Metric, PositiveNumber, Scored, TaskName


class FBeta(Metric):
    """F_β of every class, (1 + β²) hits / ((1 + β²) hits + β² misses + false alarms), as the mean over classes."""

    kind: Literal["f_beta"] = "f_beta"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass", "binary")
    better: ClassVar[Better] = "higher"
    least: ClassVar[float | None] = 0
    most: ClassVar[float | None] = 1
    beta: PositiveNumber = 1.0

    def value(self, scored: Scored) -> float:
        said, true, weight = scored.predicted, scored.labels, self.beta**2
        scores = []
        for k in torch.cat([said, true]).unique():
            hits, sum_ = (
                int(((said == k) & (true == k)).sum()),
                weight * int((true == k).sum()) + int((said == k).sum()),
            )
            scores.append((1 + weight) * hits / sum_)
        return sum(scores) / len(scores)


class Wrong(Metric):
    """The rows with another class than the predicted one: lower is better, no share, with a unit."""

    kind: Literal["wrong"] = "wrong"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass", "binary")
    better: ClassVar[Better] = "lower"
    least: ClassVar[float | None] = 0
    unit: ClassVar[str] = "rows"

    def value(self, scored: Scored) -> float:
        return int((scored.predicted != scored.labels).sum())


class OfValues(Wrong):
    kind: Literal["of_values"] = "of_values"  # type: ignore[assignment]
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)

    def value(self, scored: Scored) -> float:
        return float((scored.prediction - scored.target).abs().max())


class LateFailure(Wrong):
    """Works on few rows."""

    def value(self, scored: Scored) -> float:
        if len(scored) > 100:
            raise KeyError("too many")
        return super().value(scored)


class LateNan(Wrong):
    """Has a value for few rows."""

    def value(self, scored: Scored) -> float:
        return float("nan") if len(scored) > 100 else super().value(scored)


class LateInfinity(Wrong):
    def value(self, scored: Scored) -> float:
        return super().value(scored) + (float("inf") if len(scored) > 100 else 0)


class LateExcess(FBeta):
    """Leaves its range for many rows."""

    def value(self, scored: Scored) -> float:
        return super().value(scored) + 2 * (len(scored) > 100)


class Random(Wrong):
    def value(self, scored: Scored) -> float:
        return float(torch.rand(()))


class Undefined(Wrong):
    """Does not say that it has no value for labels that are alike."""

    def value(self, scored: Scored) -> float:
        return float("nan") if len(scored.labels.unique()) == 1 else 1.0


class Vector(Wrong):
    def value(self, scored: Scored) -> Any:
        return (scored.predicted != scored.labels).double()


class Nothing(Wrong):
    def value(self, scored: Scored) -> Any:
        return None


class BeyondItsRange(Wrong):
    most: ClassVar[float | None] = 1


class Infinite(Wrong):
    def value(self, scored: Scored) -> float:
        return float("inf")


class Writes(Wrong):
    def value(self, scored: Scored) -> float:
        scored.prediction.zero_()
        return 0.0


class Raises(Wrong):
    def value(self, scored: Scored) -> float:
        raise LookupError("no such row")


class NoDirection(Wrong):
    better: ClassVar[Any] = "up"


class NoTask(Wrong):
    tasks: ClassVar[Any] = ("clustering",)


class UpsideDown(Wrong):
    least: ClassVar[float | None] = 2
    most: ClassVar[float | None] = 1
