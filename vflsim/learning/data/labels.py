"""From labels as they stand in a file to a task and numbers to train on."""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import Array
from vflsim.learning.data.sources.table import GAPS
from vflsim.learning.data.spec import TaskName
from vflsim.streams import few

MOST_CLASSES = 100
"""More distinct labels than this are not taken for classes unless the scenario says so."""
USUAL_CLASSES = 20
"""More distinct whole numbers than this may be amounts: ``check`` notes that they count as classes."""
_NO_AMOUNT = GAPS | {"inf", "-inf", "Inf", "-Inf"}
"""Texts that are no class where all other labels are numbers, unless the scenario says so."""


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

    Texts are classes as they are written, in the order of their numbers if all are numbers; amounts are their numbers.
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
    numbers = _numbers(labels)
    distinct, first, codes, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    amounts = np.unique(numbers) if numbers.dtype.kind == "f" else distinct
    if len(amounts) < 2:
        what = f"all {len(labels)} rows have the same label, {amounts[0].item()!r}"
        raise DataError(what, where, "at least two different labels", "choose another label column")
    guessed = task == "auto"
    if guessed:
        _refuse_gaps(labels, numbers, where)
    task_name = _guess(amounts, counts, numbers.dtype.kind, where) if task == "auto" else task
    if task_name == "regression":
        if numbers.dtype.kind == "U":
            row, text = next((row, text) for row, text in enumerate(labels.tolist()) if _number(text) is None)
            what = f"labels are text, such as {text!r} in row {row + 1}"
            raise DataError(what, where, "numbers for a regression task", "correct `task` or `label`")
        return EncodedLabels(task_name, numbers.astype(np.float64), (), guessed)
    if task_name == "binary" and len(distinct) != 2:
        what = f"there are {len(distinct)} different labels: {few([str(label) for label in distinct])}"
        raise DataError(what, where, "exactly 2 for a binary task", "say `task: multiclass`, or correct `label`")
    names = distinct
    if numbers.dtype.kind == "f":
        fractions = amounts[amounts != np.round(amounts)]
        if len(fractions) and task_name == "multiclass":
            allowed = "whole numbers or text for a multiclass task"
            remedy = "say `task: regression`, or correct `label`"
            raise DataError(f"a label is {fractions[0].item()!r}", where, allowed, remedy)
        names = distinct if len(fractions) or labels.dtype.kind == "U" else distinct.astype(np.int64)
    order = np.lexsort((distinct, numbers[first]))  # that of distinct, unless these are texts of numbers
    return EncodedLabels(task_name, np.argsort(order)[codes], tuple(str(names[place]) for place in order), guessed)


def _numbers(labels: Array) -> Array:
    """Return texts as numbers, if all are finite ones: whole ones as int64, others as floats; else labels as is."""
    if labels.dtype.kind != "U":
        return labels
    for kind in (np.int64, np.float64):
        with suppress(ValueError, OverflowError):
            numbers = labels.astype(kind)
            return numbers if np.isfinite(numbers).all() else labels
    return labels


def _number(text: str) -> float | None:
    """Return the number that a text is, if it is a finite one."""
    with suppress(ValueError):
        return number if math.isfinite(number := float(text)) else None
    return None


def _refuse_gaps(labels: Array, numbers: Array, where: str) -> None:
    """Raise DataError if some labels say that there is none (NA), and all others are numbers: a class, or a gap?"""
    if numbers.dtype.kind != "U":
        return
    distinct = np.unique(labels).tolist()
    others = [text for text in distinct if _number(text) is None]
    if len(others) < len(distinct) and not {text.strip() for text in others} - _NO_AMOUNT:
        bad = np.flatnonzero(np.isin(labels, others))
        what = (
            f"row {bad[0] + 1} is {labels[bad[0]].item()!r} ({len(bad)} such labels in all), and the others are numbers"
        )
        remedy = "fill the gaps or remove the rows before; where it is a class, say `task: multiclass`"
        raise DataError(what, where, "finite numbers, or classes", remedy)


def _guess(distinct: Array, counts: Array, kind: str, where: str) -> TaskName:
    """The task by the rules of ``Data.task``, from the ``distinct`` labels, how many rows each has, and their kind."""
    if len(distinct) == 2:
        return "binary"
    if kind == "f":
        return "regression"
    if kind == "U":
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
