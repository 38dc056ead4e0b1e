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
USUAL_CLASSES = 20
"""More distinct whole numbers than this may be amounts: ``check`` notes that they count as classes."""


@dataclass(frozen=True)
class EncodedLabels:
    """Labels to train on: ``values`` (rows,) are class numbers from 0 (int64), or floats for regression.

    ``class_names`` are the labels as the file has them, in the order of their numbers; empty for regression.
    ``guessed``: the task follows from the labels alone.
    """

    task: TaskName
    values: Array
    class_names: tuple[str, ...]
    guessed: bool = False


def encode(labels: Array, task: Literal["auto"] | TaskName, where: str) -> EncodedLabels:
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
    distinct, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        what = f"all {len(labels)} rows have the same label, {distinct[0].item()!r}"
        raise DataError(what, where, "at least two different labels", "choose another label column")
    found, guessed = (_guess(distinct, counts, where), True) if task == "auto" else (task, False)
    if found == "regression":
        if labels.dtype.kind == "U":
            what = f"labels are text, such as {distinct[0].item()!r}"
            raise DataError(what, where, "numbers for a regression task", "correct `task` or `label`")
        return EncodedLabels(found, labels.astype(np.float64), (), guessed)
    whole = distinct
    if found == "binary" and len(distinct) != 2:
        what = f"there are {len(distinct)} different labels"
        raise DataError(what, where, "exactly 2 for a binary task", "say `task: multiclass`, or correct `label`")
    if labels.dtype.kind == "f":
        fractions = distinct[distinct != np.round(distinct)]
        if len(fractions) and found == "multiclass":
            allowed = "whole numbers or text for a multiclass task"
            remedy = "say `task: regression`, or correct `label`"
            raise DataError(f"a label is {fractions[0].item()!r}", where, allowed, remedy)
        whole = distinct if len(fractions) else distinct.astype(np.int64)
    return EncodedLabels(found, codes.astype(np.int64), tuple(str(label) for label in whole), guessed)


def _guess(distinct: Array, counts: Array, where: str) -> TaskName:
    """The task by the rules of ``Data.task``, from the sorted ``distinct`` labels and how many rows each has."""
    if len(distinct) == 2:
        return "binary"
    if distinct.dtype.kind == "f":
        return "regression"
    if distinct.dtype.kind == "U":
        if len(distinct) <= MOST_CLASSES:
            return "multiclass"
        what, remedy = f"{len(distinct)} different texts are many classes", "say `task: multiclass`, or correct `label`"
        raise DataError(what, where, f"up to {MOST_CLASSES} with `task: auto`", remedy)
    if len(distinct) <= MOST_CLASSES and counts.min() > 1:
        return "multiclass"
    single = int((counts == 1).sum())
    what = f"{len(distinct)} different whole numbers could be classes or amounts"
    what += f" ({single} of them {'stands' if single == 1 else 'stand'} in a single row)" if single else ""
    allowed = f"with `task: auto` up to {MOST_CLASSES}, each in at least two rows"
    raise DataError(what, where, allowed, "say `task: multiclass` or `task: regression`")
