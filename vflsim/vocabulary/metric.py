"""The base class of metrics: a number about a model's predictions, with a range, a better direction, and its tasks.

To add one to vflsim: a final class in ``metrics.py``, and its name in ``MetricKind`` there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import BaseModel

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import blaming
from vflsim.vocabulary.trial import ContractError, Trial, is_any, is_number, is_some_of

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
        with blaming(f"the metric {type(self).__name__}"):
            return as_number(self.value(scored), type(self).__name__)

    def _contract(self, trial: Trial) -> None:
        trial.fact("tasks", is_some_of(get_args(TaskName)), f"a tuple of some of {', '.join(get_args(TaskName))}")
        trial.fact("better", lambda value: value in get_args(Better), " or ".join(get_args(Better)))
        for end in ("least", "most"):
            allowed = "a finite number, or None for no limit"
            trial.fact(end, lambda value: value is None or is_number()(value), allowed)
        least, most = self.facts.span
        trial.fact("most", lambda _: least < most, f"above least, {least:g}")
        for text in ("unit", "undefined"):
            trial.fact(text, is_any(str), "a text, empty for none")
        for task in self.tasks:
            for what, prediction, target in predictions(task):
                where, name = f"for {what} of a {task} task", f"{trial.name}.value"
                value = trial.ask("value", prediction, target, where=where, call=partial(self._tried, task))
                may_lack = self.undefined and what in (ALIKE, ONE_ROW)
                remedy = f"mend 'value', or say when it has none: undefined = 'where …' of {trial.name}"
                trial.must(may_lack or not math.isnan(value), f"{name} is NaN {where}", "a number", "value", remedy)
                fits = math.isnan(value) or (math.isfinite(value) and least <= value <= most)
                remedy = "mend 'value', or the range ('least', 'most') of the class"
                allowed = f"finite, from {least:g} to {most:g}"
                trial.must(fits, f"{name} is {value:g} {where}", allowed, "value", remedy)

    def _tried(self, task: TaskName, prediction: Tensor, target: Tensor) -> float:
        import torch.nn.functional as F
        from torch import no_grad

        losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "multiclass": F.cross_entropy, "binary": F.binary_cross_entropy_with_logits, "regression": F.mse_loss
        }  # fmt: skip
        with no_grad():
            return as_number(self.value(Scored(task, prediction, target, losses[task])), type(self).__name__)


def as_number(value: Any, name: str) -> float:
    """Return a metric's value, a number or a tensor with one element, as a float. Raises ValueError for others."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError):
        of = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise ContractError(
            f"{name}.value returned a {type(value).__name__}{of}; allowed: one number; mend 'value' of the class"
        ) from None


ALIKE, ONE_ROW = "labels that are all alike", "one row"
_ROWS, _CLASSES = 24, 3


def predictions(task: TaskName) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield predictions and targets to try a class with, in the shapes that a run has, and what they are in words."""
    import torch
    import torch.nn.functional as F

    draw = torch.Generator().manual_seed(1)
    for dtype in (torch.float64, torch.float32):
        if task == "multiclass":
            target = torch.arange(_ROWS) % _CLASSES
            good = 8 * F.one_hot(target, _CLASSES).to(dtype)
        elif task == "binary":
            target = (torch.arange(_ROWS) % 2)[:, None].to(dtype)
            good = 8 * target - 4
        else:
            target = torch.randn(_ROWS, 1, generator=draw, dtype=dtype)
            good = target + 0.01
        drawn = torch.randn(good.shape, generator=draw, dtype=dtype)
        yield "random predictions", drawn, target
        yield "good predictions", good, target
        yield ALIKE, drawn, target[:1].expand_as(target).clone()
        yield ONE_ROW, drawn[:1], target[:1]
