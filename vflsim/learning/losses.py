"""What the parties train on: losses of predictions, by task.

To add one to vflsim: a final class like those below, and its name in ``LossKind`` at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.metric import TaskName, predictions
from vflsim.vocabulary.on_demand import Tensor, functional as F, torch
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
            target = (
                torch.arange(count) % outputs if task == "multiclass" else torch.arange(count)[:, None].to(dtype) % 2
            )
            self._asked(trial, f"for {count:,} rows and {outputs} outputs of a {task} task", prediction, target)

    def _asked(self, trial: Trial, where: str, prediction: Tensor, target: Tensor) -> tuple[float, Tensor]:
        call = partial(self._differentiated, trial, where)
        value, slope = trial.ask("value", prediction, target, where=where, call=call)
        allowed = "finite, at least 0 (a constant added changes no gradient)"
        trial.must(0 <= value < float("inf"), f"{trial.name}.value is {value:g} {where}", allowed, "value")
        return value, slope

    def _differentiated(self, trial: Trial, where: str, prediction: Tensor, target: Tensor) -> tuple[float, Tensor]:
        """Return the loss, and its gradient by the prediction."""
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
"""Every kind of loss."""

AnyLoss = Annotated[
    LossKind, Field(discriminator="kind"), OrModule(Loss), Shorthand(kind_from_text, {"type": "string"})
]
"""A field that takes any kind of loss, or its name."""
