"""What the parties train on and report: losses of predictions, and prediction tasks with their metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, final, get_args

from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.metric import Metric, Scored, TaskName, predictions
from vflsim.vocabulary.metrics import LOSS, REPORTED
from vflsim.vocabulary.on_demand import Tensor, TensorOutline, dtype as dtype_named, functional as F, torch
from vflsim.vocabulary.quantities import NonNegativeNumber, PositiveNumber
from vflsim.vocabulary.trial import Trial, is_some_of, type_of


class Loss(Part, ABC):
    """A loss of predictions: the mean over the rows of a loss of each row, at least 0.

    Example of a class of your own, which a scenario names by
    ``training: {loss: {kind: module, path: "mine:Margin", width: 2}}``::

        class Margin(Loss):
            kind: Literal["margin"] = "margin"
            tasks: ClassVar[tuple[TaskName, ...]] = ("binary",)
            width: PositiveNumber = 1.0

            def value(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
                return (self.width - (2 * target - 1) * prediction).clamp(min=0).mean()
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    tasks: ClassVar[tuple[TaskName, ...]]
    """The tasks that can be trained on it."""

    @abstractmethod
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a scalar that is differentiable in ``prediction``: the mean over the rows.

        ``prediction`` is (n, outputs): logits of classes, one logit of yes, or a value. ``target`` is (n,) class
        numbers, int64, of a multiclass task, and (n, 1), 0 or 1 or a value, of the others. Changes no tensor.
        """

    def mean_value(self, predictions: Tensor, target: Tensor) -> Tensor:
        """Return the mean of the losses of G predictions for the same rows, (G, n, outputs)."""
        repeated = target.expand(len(predictions), *target.shape).flatten(0, 1)
        return self.value(predictions.flatten(0, 1), repeated)

    def _contract(self, trial: Trial) -> None:
        trial.fact("tasks", is_some_of(get_args(TaskName)), f"a tuple of some of {', '.join(get_args(TaskName))}")
        for task in self.tasks:
            for what, prediction, target in predictions(task):
                where = f"for {what} of a {task} task"
                value, slope = self._asked(trial, where, prediction, target)
                what = f"the gradient of {trial.name}.value is not finite {where}"
                trial.must(bool(torch.isfinite(slope).all()), what, "finite", "value")
                rows = zip(torch.split(prediction, 1), torch.split(target, 1), strict=True)
                mean = sum(self._differentiated(trial, where, *row)[0] for row in rows) / len(prediction)
                what = f"{trial.name}.value is {value:.6g} {where}, and the mean of that of each row by itself is"
                alike = abs(value - mean) <= 1e-4 * max(1.0, abs(mean))
                trial.must(alike, f"{what} {mean:.6g}", "the mean over the rows", "value")

    def _contract_at(self, trial: Trial, task: TaskName, outputs: int, dtype: torch.dtype, rows: Iterable[int]) -> None:
        """Compute the loss of random predictions of a run's sizes: ``rows`` of its mini-batches and splits."""
        draw = torch.Generator().manual_seed(1)
        for count in rows:
            prediction = torch.randn(count, outputs, generator=draw, dtype=dtype)
            numbers = torch.arange(count)
            target = numbers % outputs if task == "multiclass" else numbers[:, None].to(dtype) % 2
            self._asked(trial, f"for {count:,} rows and {outputs} outputs of a {task} task", prediction, target)

    def _asked(self, trial: Trial, where: str, *rows: Tensor) -> tuple[float, Tensor]:
        value, slope = trial.ask("value", *rows, where=where, call=partial(self._differentiated, trial, where))
        allowed = "finite, at least 0 (a constant added changes no gradient)"
        trial.must(0 <= value < float("inf"), f"{trial.name}.value is {value:g} {where}", allowed, "value")
        return value, slope

    def _differentiated(self, trial: Trial, where: str, prediction: Tensor, target: Tensor) -> tuple[float, Tensor]:
        name, leaf = f"{trial.name}.value", prediction.requires_grad_()
        value = self.value(leaf, target)
        scalar = isinstance(value, Tensor) and value.shape == ()
        allowed = "a tensor without dimensions: the mean over the rows"
        trial.must(scalar, f"{name} returned {type_of(value)} {where}", allowed, "value")
        same = value.dtype == prediction.dtype
        trial.must(same, f"{name} has the dtype {value.dtype}", f"that of the predictions, {prediction.dtype}", "value")
        what = f"{name} does not depend on the predictions {where}"
        trial.must(value.requires_grad, what, "differentiable; use operations of PyTorch", "value")
        (slope,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), slope


@final
class Auto(Loss):
    """That of the task: ``cross_entropy``, ``binary_cross_entropy`` or ``mean_squared_error``.

    Example: ``{kind: auto}``
    """

    kind: Literal["auto"] = "auto"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass", "binary", "regression")

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("a task takes its own loss instead")


@final
class CrossEntropy(Loss):
    """Soft-max cross entropy, −log p of a row's class.

    Example: ``{kind: cross_entropy}``
    """

    kind: Literal["cross_entropy"] = "cross_entropy"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass",)

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(prediction, target)


@final
class BinaryCrossEntropy(Loss):
    """Binary cross entropy of a logit.

    Example: ``{kind: binary_cross_entropy}``
    """

    kind: Literal["binary_cross_entropy"] = "binary_cross_entropy"
    tasks: ClassVar[tuple[TaskName, ...]] = ("binary",)

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(prediction, target)


@final
class MeanSquaredError(Loss):
    """The mean of (y − ŷ)².

    Example: ``{kind: mean_squared_error}``
    """

    kind: Literal["mean_squared_error"] = "mean_squared_error"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(prediction, target)


@final
class AbsoluteError(Loss):
    """The mean of \\|y − ŷ\\|, whose gradient outliers do not dominate.

    Example: ``{kind: mean_absolute_error}``
    """

    kind: Literal["mean_absolute_error"] = "mean_absolute_error"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(prediction, target)


@final
class Huber(Loss):
    """½ (y − ŷ)² up to an error of δ, and δ (\\|y − ŷ\\| − ½ δ) beyond (Huber 1964).

    Example: ``{kind: huber, delta: 0.5}``
    """

    kind: Literal["huber"] = "huber"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)
    delta: PositiveNumber = 1.0
    """δ, in the unit of the labels."""

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(prediction, target, delta=self.delta)


@final
class Focal(Loss):
    """−(1 − p)^γ log p of the probability p of a row's class (Lin et al. 2017, Eq. 4): easy rows count for less.

    Example: ``{kind: focal, gamma: 2}``
    """

    kind: Literal["focal"] = "focal"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass", "binary")
    gamma: NonNegativeNumber = 2.0
    """γ; 0 is cross entropy."""

    @override
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        if prediction.shape == target.shape:
            logs = F.logsigmoid(torch.where(target > 0.5, prediction, -prediction))
        else:
            logs = torch.log_softmax(prediction, 1).gather(1, target[:, None])
        return ((-torch.expm1(logs)) ** self.gamma * -logs).mean()


LossKind: TypeAlias = Auto | CrossEntropy | BinaryCrossEntropy | MeanSquaredError | AbsoluteError | Huber | Focal
LOSSES: tuple[type[Loss], ...] = get_args(LossKind)
AnyLoss = Annotated[
    LossKind, Field(discriminator="kind"), OrModule(Loss), Shorthand(kind_from_text, {"type": "string"})
]


@dataclass(frozen=True, eq=False)
class PredictionTask(ABC):
    """One kind of prediction. All methods are pure; predictions are (n, outputs) logits or values."""

    name: ClassVar[TaskName]
    usual_loss: ClassVar[Loss]
    """What is trained on, unless the scenario says otherwise."""
    own_loss: Loss | None = None
    """What the scenario says instead."""
    own_metrics: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics that the scenario names, which are reported after the others."""

    def having(self, own_metrics: Mapping[str, Metric]) -> Self:
        """The same task with a scenario's own metrics, by name."""
        return replace(self, own_metrics=own_metrics)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What ``scores`` reports beside the loss, in that order."""
        return tuple(name for name in self._measures if name != LOSS)

    def outputs(self, classes: int | None) -> int:
        """How many columns the server predicts, for labels with this many classes (None for regression)."""
        return 1

    def target(self, labels: NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Labels (n,) as the tensor that ``loss`` and ``scores`` take: (n, 1) of ``dtype``, a copy."""
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
        return replace(self, own_loss=loss)

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

    def scores(self, prediction: Tensor, target: Tensor) -> dict[str, float]:
        """The loss and the metrics over all rows together; NaN where one is undefined."""
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
