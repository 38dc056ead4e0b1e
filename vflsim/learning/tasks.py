"""Prediction tasks: the loss to train on, and the metrics to report."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from vflsim.learning.losses import LOSSES, Auto, BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
from vflsim.vocabulary.metric import Metric, Scored, TaskName
from vflsim.vocabulary.metrics import LOSS, REPORTED
from vflsim.vocabulary.on_demand import Tensor, TensorOutline, dtype as dtype_named, torch


class PredictionTask(ABC):
    """One kind of prediction. All methods are pure; predictions are (n, outputs) logits or values."""

    name: ClassVar[TaskName]
    usual_loss: ClassVar[Loss]
    """What is trained on, unless the scenario says otherwise."""
    own_loss: Loss | None = None
    """What the scenario says instead."""
    own_metrics: Mapping[str, Metric] = MappingProxyType({})
    """Metrics that the scenario names, which are reported after the others."""

    def having(self, own_metrics: Mapping[str, Metric]) -> Self:
        """The same task with a scenario's own metrics, by name."""
        task = copy(self)
        task.own_metrics = own_metrics
        return task

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

    def outline(self, labels: NDArray[Any], dtype: str) -> TensorOutline:
        """Shape and dtype of ``target``."""
        return TensorOutline((len(labels), 1), dtype_named(dtype), labels.reshape(-1, 1))

    def trained_on(self, loss: Loss) -> Self:
        """The same task with a loss of the scenario; the task itself for the usual one.

        Raises ValueError for a loss of other tasks.
        """
        if isinstance(loss, Auto) or loss == self.usual_loss:
            return self
        if self.name not in loss.tasks:
            raise ValueError(
                f"the loss {loss.kind} does not fit a {self.name} task; allowed: auto, {', '.join(self.loss_names)}, "
                "or another data.task"
            )
        task = copy(self)
        task.own_loss = loss
        return task

    @property
    def loss_names(self) -> tuple[str, ...]:
        """The kinds of losses that fit the task, the usual one first."""
        fit = [each.model_fields["kind"].default for each in LOSSES if self.name in each.tasks and each is not Auto]
        return tuple(sorted(fit, key=lambda kind: kind != self.usual_loss.kind))

    def prior(self, target: Tensor, outputs: int) -> Tensor:
        """The prediction for a row of which nothing is known but the training rows' targets, (outputs,) of float64.

        The logarithms of the classes' shares (each class counted once more, so that no share is 0), or the mean value.
        """
        return target.double().mean(0)

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss, a scalar: the mean over the rows."""
        return (self.own_loss or self.usual_loss).value(prediction, target)

    def mean_loss(self, predictions: Tensor, target: Tensor) -> Tensor:
        """The mean of the losses of several predictions for the same rows, (G, n, outputs): a scalar."""
        return (self.own_loss or self.usual_loss).mean_value(predictions, target)

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
    usual_loss = CrossEntropy()

    def outputs(self, classes: int | None) -> int:
        """One logit per class."""
        if classes is None or classes < 2:
            raise ValueError(f"a multiclass task needs at least 2 classes, not {classes}")
        return classes

    def target(self, labels: NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Class numbers, (n,) of int64, a copy."""
        return torch.tensor(labels, dtype=torch.int64)

    def outline(self, labels: NDArray[Any], dtype: str) -> TensorOutline:
        """Shape and dtype of class numbers."""
        return TensorOutline((len(labels),), dtype_named("int64"), labels)

    def prior(self, target: Tensor, outputs: int) -> Tensor:
        """The logarithms of the classes' shares."""
        return ((torch.bincount(target, minlength=outputs) + 1).double() / (len(target) + outputs)).log()


class Binary(PredictionTask):
    """Yes (1) or no (0): binary cross entropy on one logit."""

    name = "binary"
    usual_loss = BinaryCrossEntropy()

    def prior(self, target: Tensor, outputs: int) -> Tensor:
        """The logarithm of the share of yes over that of no."""
        return ((target.double().sum(0) + 1) / (len(target) + 2)).logit()


class Regression(PredictionTask):
    """A number: mean squared error on one output."""

    name = "regression"
    usual_loss = MeanSquaredError()


MULTICLASS, BINARY, REGRESSION = Multiclass(), Binary(), Regression()

TASKS: dict[str, PredictionTask] = {task.name: task for task in (MULTICLASS, BINARY, REGRESSION)}


def task_of(name: str, loss: Loss | None = None) -> PredictionTask:
    """The task of the data set, trained on ``loss``; ValueError if the two do not belong together."""
    return TASKS[name] if loss is None else TASKS[name].trained_on(loss)
