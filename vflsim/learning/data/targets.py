"""From labels as they stand in a file to a task and numbers to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import Array
from vflsim.learning.data.spec import TaskName

MOST_CLASSES = 100
"""More distinct labels than this are not taken for classes unless the scenario says so."""


@dataclass(frozen=True)
class Target:
    """What is to be predicted: ``values`` (rows,) are class numbers from 0 (int64), or floats for regression.

    ``class_names`` are the labels as the file has them, in the order of their numbers; empty for regression.
    """

    task: TaskName
    values: Array
    class_names: tuple[str, ...]


def encode(labels: Array, task: Literal["auto"] | TaskName, where: str) -> Target:
    """Encode the labels for a task, found out where it is ``auto`` (what that means: ``Data.task``).

    Raises DataError when labels are not finite, are all the same, do not fit the task, or leave the task unclear.
    """
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iufU":
        raise DataError(f"labels are of type {labels.dtype}", where, "numbers or text", "convert them before")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        bad = np.flatnonzero(~np.isfinite(labels))
        what = f"row {bad[0] + 1} is {labels[bad[0]]} ({len(bad)} such labels in all)"
        raise DataError(what, where, "finite labels", "fill the gaps or remove the rows before")
    distinct, codes = np.unique(labels, return_inverse=True)
    if len(distinct) < 2:
        what = f"all {len(labels)} rows have the same label, {distinct[0].item()!r}"
        raise DataError(what, where, "at least two different labels", "choose another label column")
    found = _guess(distinct, where) if task == "auto" else task
    if found == "regression":
        if labels.dtype.kind == "U":
            what = f"labels are text, such as {distinct[0].item()!r}"
            raise DataError(what, where, "numbers for a regression task", "correct `task` or `label`")
        return Target(found, labels.astype(np.float64), ())
    if labels.dtype.kind == "f" and not np.equal(distinct, np.round(distinct)).all():
        fraction = distinct[distinct != np.round(distinct)][0].item()
        allowed = f"whole numbers or text for a {found} task"
        raise DataError(f"a label is {fraction!r}", where, allowed, "say `task: regression`, or correct `label`")
    if found == "binary" and len(distinct) != 2:
        what = f"there are {len(distinct)} different labels"
        raise DataError(what, where, "exactly 2 for a binary task", "say `task: multiclass`, or correct `label`")
    whole = distinct.astype(np.int64) if labels.dtype.kind == "f" else distinct
    return Target(found, codes.astype(np.int64), tuple(str(label) for label in whole))


def _guess(distinct: Array, where: str) -> TaskName:
    if distinct.dtype.kind != "U" and len(distinct) == 2 and (distinct == [0, 1]).all():
        return "binary"
    if distinct.dtype.kind == "f":
        return "regression"
    if len(distinct) <= MOST_CLASSES:
        return "multiclass"
    what = f"{len(distinct)} different labels could be classes or amounts"
    raise DataError(what, where, f"up to {MOST_CLASSES} with `task: auto`", "say `task: multiclass` or `regression`")
