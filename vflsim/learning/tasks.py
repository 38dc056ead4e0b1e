"""Prediction tasks: the loss to train on, and the metrics to report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vflsim.vocabulary.metric import Metric, Scored, TaskName
from vflsim.vocabulary.metrics import LOSS, REPORTED

Loss = Literal["auto", "cross_entropy", "binary_cross_entropy", "mean_squared_error"]


class PredictionTask(ABC):
    """One kind of prediction. All methods are pure; predictions are (n, outputs) logits or values."""

    name: ClassVar[TaskName]
    loss_name: ClassVar[Loss]
    own_metrics: Mapping[str, Metric] = MappingProxyType({})
    """Metrics that the scenario names, which are reported after the others."""

    def having(self, own_metrics: Mapping[str, Metric]) -> Self:
        """The same task with a scenario's own metrics, by name."""
        found = copy(self)
        found.own_metrics = own_metrics
        return found

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What ``metrics`` reports, in that order."""
        return tuple(name for name in self._measures if name != LOSS)

    def outputs(self, classes: int | None) -> int:
        """How many columns the server predicts, for labels with this many classes (None for regression)."""
        return 1

    def target(self, labels: NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Labels (n,) as the tensor that ``loss`` and ``metrics`` take: (n, 1) of ``dtype``, a copy."""
        return torch.tensor(labels, dtype=dtype).reshape(-1, 1)

    @abstractmethod
    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss, a scalar: the mean over the rows."""

    def metrics(self, prediction: Tensor, target: Tensor) -> dict[str, float]:
        """The metrics over all rows together, without the loss; NaN where one is undefined."""
        return {name: value for name, value in self.scores(prediction, target).items() if name != LOSS}

    def scores(self, prediction: Tensor, target: Tensor) -> dict[str, float]:
        """The loss and the metrics over all rows together."""
        scored = Scored(self.name, prediction.detach(), target, self.loss)
        return {name: metric.measured(scored) for name, metric in self._measures.items()}

    @property
    def _measures(self) -> dict[str, Metric]:
        return {name: each for name, each in REPORTED.items() if self.name in each.tasks} | dict(self.own_metrics)


class Multiclass(PredictionTask):
    """One of C ≥ 2 classes, numbered from 0: soft-max cross entropy on C logits."""

    name = "multiclass"
    loss_name = "cross_entropy"

    def outputs(self, classes: int | None) -> int:
        """One logit per class."""
        if classes is None or classes < 2:
            raise ValueError(f"a multiclass task needs at least 2 classes, not {classes}")
        return classes

    def target(self, labels: NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Class numbers, (n,) of int64, a copy."""
        return torch.tensor(labels, dtype=torch.int64)

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Cross entropy."""
        return F.cross_entropy(prediction, target)


class Binary(PredictionTask):
    """Yes (1) or no (0): binary cross entropy on one logit."""

    name = "binary"
    loss_name = "binary_cross_entropy"

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Binary cross entropy with logits."""
        return F.binary_cross_entropy_with_logits(prediction, target)


class Regression(PredictionTask):
    """A number: mean squared error on one output."""

    name = "regression"
    loss_name = "mean_squared_error"

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Mean squared error."""
        return F.mse_loss(prediction, target)


MULTICLASS, BINARY, REGRESSION = Multiclass(), Binary(), Regression()

TASKS: dict[str, PredictionTask] = {task.name: task for task in (MULTICLASS, BINARY, REGRESSION)}


def task_of(name: str, loss: Loss = "auto") -> PredictionTask:
    """The task of the data set, trained on ``loss``; ValueError if the two do not belong together."""
    task = TASKS[name]
    if loss not in ("auto", task.loss_name):
        raise ValueError(
            f"the loss {loss} does not fit a {name} task; allowed: auto, {task.loss_name}, or another data.task"
        )
    return task
