"""The base class of metrics: a number about a model's predictions, with a range, a better direction, and its tasks.

To add one to vflsim: a final class in ``metrics.py``, and its name in ``MetricKind`` there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel

from vflsim.errors import RunError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import origin, reason

if TYPE_CHECKING:
    from torch import Tensor

TaskName: TypeAlias = Literal["multiclass", "binary", "regression"]
"""The task of a model. Example: ``tasks: ClassVar[tuple[TaskName, ...]] = ("binary",)``."""
Better: TypeAlias = Literal["higher", "lower"]
"""The better values of a metric. Example: ``better: ClassVar[Better] = "lower"``."""


class MetricFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Facts about a metric that tables and figures need.

    ``least`` and ``most`` are the ends of its range (None: unlimited), ``unit`` is that of its values, ``undefined``
    says when it has no value (empty: never).

    Example: ``MetricFacts(better="higher", least=0, most=1)``
    """

    better: Better
    least: float | None = None
    most: float | None = None
    unit: str = ""
    undefined: str = ""

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest value, infinite where there is no limit."""
        return (-float("inf") if self.least is None else self.least, float("inf") if self.most is None else self.most)

    @property
    def is_share(self) -> bool:
        """Whether it lies between 0 and 1, and so may be written in per cent."""
        return (self.least, self.most) == (0, 1)


@dataclass(frozen=True)
class Scored:
    """A model's predictions for all rows of a split, and the truth.

    ``prediction`` is (n, outputs): logits of classes, one logit of yes, or a value. ``target`` is (n,) class numbers,
    int64, of a multiclass task, and (n, 1), 0 or 1 or a value, of the others. ``mean_loss`` is what the run trains on.
    No method may change a tensor.

    Example: ``(scored.predicted == scored.labels).double().mean().item()``
    """

    task: TaskName
    prediction: Tensor
    target: Tensor
    mean_loss: Callable[[Tensor, Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.target)

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of every row, (n,) int64: the largest logit (the first, if several), or yes above 0."""
        if self.task == "multiclass":
            return self.prediction.argmax(1)
        self._needs_classes()
        return (self.prediction[:, 0] > 0).long()

    @cached_property
    def labels(self) -> Tensor:
        """The true class of every row, (n,) int64."""
        if self.task == "multiclass":
            return self.target
        self._needs_classes()
        return (self.target[:, 0] > 0.5).long()

    def _needs_classes(self) -> None:
        if self.task == "regression":
            raise ValueError("a regression has no classes; allowed: a metric with tasks multiclass, binary")


class Metric(Part, ABC):
    """A number about a model's predictions for all rows of a split.

    A metric is one class: ``kind``, the facts below, and ``value``. Its fields, if any, are its keys in a scenario.

    Example of a class of your own, which a scenario names by ``metrics: {right: {kind: module, path: "mine:Right"}}``,
    so that runs have the columns ``validation_right`` and ``test_right``::

        class Right(Metric):
            kind: Literal["right"] = "right"
            tasks: ClassVar[tuple[TaskName, ...]] = ("binary", "multiclass")
            better: ClassVar[Better] = "higher"
            least: ClassVar[float | None] = 0

            def value(self, scored: Scored) -> float:
                return int((scored.predicted == scored.labels).sum())
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    tasks: ClassVar[tuple[TaskName, ...]]
    """The tasks that have it."""
    better: ClassVar[Better]
    """Whether ``higher`` or ``lower`` values are better."""
    least: ClassVar[float | None] = None
    """The least possible value; None: there is none."""
    most: ClassVar[float | None] = None
    """The greatest possible value; None: there is none. A metric from 0 to 1 may be written in per cent."""
    unit: ClassVar[str] = ""
    """The unit of its values, for labels; empty: none."""
    undefined: ClassVar[str] = ""
    """When it has no value, which is NaN then: ``where only one class is there``. Empty: it always has one."""
    always: ClassVar[bool] = False
    """Whether every run of such a task reports it. Others are reported where the scenario's ``metrics`` names them."""

    @abstractmethod
    def value(self, scored: Scored) -> float:
        """Return the metric of all rows together; NaN where it is undefined. There is at least one row.

        Draws no random number and changes no tensor. Raises what it likes: the run then fails with the place.
        """

    @property
    def facts(self) -> MetricFacts:
        """The facts that tables and figures need."""
        return MetricFacts(
            better=self.better, least=self.least, most=self.most, unit=self.unit, undefined=self.undefined
        )

    def measured(self, scored: Scored) -> float:
        """Return ``value`` as a float. Raises ``RunError``, with the place in the code, for what goes wrong in it."""
        try:
            return as_number(self.value(scored), type(self).__name__)
        except Exception as error:  # the user's code may raise anything
            what = f"the metric {type(self).__name__} fails: {reason(error)}"
            raise RunError(what, remedy=f"mend it; raised in {origin(error)}") from error


def as_number(value: Any, name: str) -> float:
    """Return a metric's value, a number or a tensor with one element, as a float. Raises ValueError for others."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError):
        of = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise ValueError(
            f"{name}.value returned a {type(value).__name__}{of}; allowed: one number; mend 'value' of the class"
        ) from None
