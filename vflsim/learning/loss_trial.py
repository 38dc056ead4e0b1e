"""Trial of a loss from outside: a finite mean over rows of at least 0, differentiable, the same every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol, get_args

import torch
from torch import Tensor

from vflsim.vocabulary.metric import TaskName

_ROWS, _CLASSES = 24, 3


class Tried(Protocol):
    """What is tried out of a loss."""

    tasks: ClassVar[tuple[TaskName, ...]]

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The mean over the rows."""


def try_out(loss: Tried) -> None:
    """Compute a loss, and its gradient, of random and of good predictions. Raises ValueError for what is wrong."""
    own, known = type(loss), get_args(TaskName)
    tasks = getattr(own, "tasks", None)
    if not isinstance(tasks, tuple) or not tasks or not set(tasks) <= set(known):
        what = f"{own.__name__}.tasks is {tasks!r}; allowed: a tuple of some of {', '.join(known)}"
        raise ValueError(f"{what}; mend 'tasks' of the class")
    for task in loss.tasks:
        for what, prediction, target in _cases(task):
            _one(loss, f"for {what} of a {task} task", prediction, target)


def try_out_at(loss: Tried, task: TaskName, outputs: int, dtype: torch.dtype, rows: Iterable[int]) -> None:
    """Compute a loss of random predictions of a run's sizes. Raises ValueError for what is wrong.

    ``rows`` are those of its mini-batches and splits.
    """
    draw = torch.Generator().manual_seed(1)
    for count in rows:
        prediction = torch.randn(count, outputs, generator=draw, dtype=dtype)
        target = torch.arange(count) % outputs if task == "multiclass" else torch.arange(count)[:, None].to(dtype) % 2
        where = f"for {count:,} rows and {outputs} outputs of a {task} task"
        value, _ = _differentiated(loss, where, prediction, target)
        if not 0 <= value < float("inf"):
            _refuse(f"{type(loss).__name__}.value is {value:g} {where}", "finite, at least 0")


def _cases(task: TaskName) -> Iterator[tuple[str, Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    for dtype in (torch.float64, torch.float32):
        if task == "multiclass":
            target = torch.arange(_ROWS) % _CLASSES
            good = 4 * torch.nn.functional.one_hot(target, _CLASSES).to(dtype)
        elif task == "binary":
            target = (torch.arange(_ROWS) % 2)[:, None].to(dtype)
            good = 8 * target - 4
        else:
            target = torch.randn(_ROWS, 1, generator=draw, dtype=dtype)
            good = target + 0.01
        yield "random predictions", torch.randn(good.shape, generator=draw, dtype=dtype), target
        yield "good predictions", good, target
        yield "one row", good[:1], target[:1]


def _one(loss: Tried, where: str, prediction: Tensor, target: Tensor) -> None:
    name = type(loss).__name__
    (value, slope), (again, slope_again) = (_differentiated(loss, where, prediction, target) for _ in range(2))
    if value != again or not torch.equal(slope, slope_again):
        _refuse(f"{name}.value gives {value:g}, then {again:g} {where}", "the same each time; draw no random numbers")
    if not 0 <= value < float("inf"):
        _refuse(f"{name}.value is {value:g} {where}", "finite, at least 0 (a constant added changes no gradient)")
    if not bool(torch.isfinite(slope).all()):
        _refuse(f"the gradient of {name}.value is not finite {where}", "finite")
    rows = zip(torch.split(prediction, 1), torch.split(target, 1), strict=True)
    mean = sum(_differentiated(loss, where, *row)[0] for row in rows) / len(prediction)
    if abs(value - mean) > 1e-4 * max(1.0, abs(mean)):
        what = f"{name}.value is {value:.6g} {where}, and the mean of that of each row by itself is {mean:.6g}"
        _refuse(what, "the mean over the rows")


def _differentiated(loss: Tried, where: str, prediction: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Return the loss, and its gradient by the prediction."""
    name, leaf, truth = type(loss).__name__, prediction.clone().requires_grad_(), target.clone()
    value = loss.value(leaf, truth)
    if not isinstance(value, Tensor) or value.shape != ():
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        what = f"{name}.value returned a {type(value).__name__}{shape} {where}"
        _refuse(what, "a tensor without dimensions: the mean over the rows")
    if value.dtype != prediction.dtype:
        _refuse(f"{name}.value has the dtype {value.dtype}", f"that of the predictions, {prediction.dtype}")
    if not value.requires_grad:
        _refuse(f"{name}.value does not depend on the predictions {where}", "differentiable; use operations of PyTorch")
    if not (torch.equal(leaf, prediction) and torch.equal(truth, target)):
        _refuse(f"{name}.value changes the tensors that it is given", "only to read them; copy them")
    (slope,) = torch.autograd.grad(value, leaf)
    return float(value.detach()), slope


def _refuse(what: str, allowed: str) -> None:
    raise ValueError(f"{what}; allowed: {allowed}; mend 'value' of the class")
