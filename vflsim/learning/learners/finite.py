"""Losses and gradients that have to be finite: where a run that diverges ends."""

from __future__ import annotations

import math
from functools import partial

from vflsim.errors import NonFiniteError
from vflsim.learning.execution.operations import Handle
from vflsim.vocabulary.on_demand import Tensor, torch

RECEIVED, LOCAL = "the gradient received", "the gradient of the local objective"


def finite_loss(loss: Tensor, where: str = "") -> float:
    """Return the loss as a number. Raises ``NonFiniteError`` if it is none.

    Example::

        finite_loss(torch.tensor(0.5))  # 0.5
    """
    value = float(loss)
    if not math.isfinite(value):
        raise NonFiniteError(f"the training loss became {value}", where)
    return value


def set_loss(handle: Handle[float], loss: Tensor, where: str = "") -> None:
    """Fulfil the promise of a step's loss, a tensor () without a graph.

    On the CPU, raises ``NonFiniteError`` if it is not finite. On a GPU nobody waits for it: whoever reads the handle
    gets the error.

    Example::

        promised: Handle[float] = Handle()
        set_loss(promised, torch.tensor(0.5))
        promised.value  # 0.5
    """
    if loss.device.type == "cpu":
        handle.set(finite_loss(loss, where))
    else:
        handle.defer(partial(finite_loss, loss, where))


def check_loss(loss: Tensor) -> None:
    """Raise ``NonFiniteError`` for a loss on the CPU that is not finite. On a GPU the next loss read shows it."""
    if loss.device.type == "cpu":
        finite_loss(loss)


def check_finite(gradient: Tensor, what: str = RECEIVED) -> None:
    """Raise ``NonFiniteError`` for a gradient on the CPU that is not finite. On a GPU the next loss shows it."""
    if gradient.device.type == "cpu" and not torch.isfinite(gradient).all():
        raise NonFiniteError(f"{what} is not finite")
