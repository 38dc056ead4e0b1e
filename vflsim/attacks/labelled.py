"""Predictions against labels, row by row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vflsim.learning.tasks import BINARY, REGRESSION, PredictionTask


def need_classes(task: PredictionTask) -> None:
    """Raise ``ValueError`` for a regression, whose predictions are neither right nor wrong."""
    if task.name == REGRESSION.name:
        raise ValueError(f"a {task.name} has no classes to mistake; allowed: binary and multiclass tasks")


def classes_of(prediction: Tensor, task: PredictionTask) -> Tensor:
    """Return the predicted class of every row, int64, as the task's accuracy counts it."""
    return (prediction[:, 0] > 0).long() if task.name == BINARY.name else prediction.argmax(1)


def truth_of(labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the class of every row, int64."""
    return (labels[:, 0] > 0.5).long() if task.name == BINARY.name else labels


def total_loss(prediction: Tensor, labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the sum of the losses of the rows: of the loss that the run was trained on."""
    if task.own_loss is not None:
        return task.loss(prediction, labels) * len(prediction)
    if task.name == BINARY.name:
        return functional.binary_cross_entropy_with_logits(prediction, labels, reduction="none")[:, 0].sum()
    return functional.cross_entropy(prediction, labels, reduction="none").sum()


def logits_of(prediction: Tensor, labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the logit of every row's own class; of a yes-or-no task the logit, with its sign turned for no."""
    if task.name == BINARY.name:
        return torch.where(labels[:, 0] > 0.5, prediction[:, 0], -prediction[:, 0])
    return prediction.gather(1, labels[:, None])[:, 0]
