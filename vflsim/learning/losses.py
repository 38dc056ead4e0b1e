"""What the parties train on: losses of predictions, by task.

To add one to vflsim: a final class like those below, and its name in ``LossKind`` at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.metric import TaskName
from vflsim.vocabulary.quantities import NonNegativeNumber, PositiveNumber


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
    LossKind,
    Field(discriminator="kind"),
    OrModule(Loss, trial="vflsim.learning.loss_trial:try_out"),
    Shorthand(kind_from_text, {"type": "string"}),
]
"""A field that takes any kind of loss, or its name."""
