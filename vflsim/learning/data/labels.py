"""From labels as they stand in a file to a task and numbers to train on; what the columns of a table hold."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflsim.errors import DataError
from vflsim.learning.data.raw import Array
from vflsim.learning.data.spec import TaskName
from vflsim.learning.data.table import GAPS, Table, is_number, is_text, read_table
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


ColumnKind = Literal["number", "category", "text", "id", "time", "other"]
TABLES = (".csv", ".csv.gz", ".parquet")
"""Endings of the files that are tables of named columns."""
MOST_CATEGORIES = 1000
"""A text with more different values is no category."""


@dataclass(frozen=True)
class SurveyedColumn:
    """A column of a table: its ``kind``, its number of ``missing`` cells and of ``distinct`` values among the others.

    A ``category`` is text with at most 1,000 values, each in two rows on average; an ``id`` has another value in each
    row, and is a text without spaces, whole numbers under a name such as ``customer_id``, or a count of the rows from 0
    or 1, in the order of the file; other texts are ``text``.
    """

    name: str
    kind: ColumnKind
    missing: int
    distinct: int


@dataclass(frozen=True)
class Survey:
    """What a table holds: its rows, its columns except the label in the order of the file, and the labels, (rows,).

    Example: ``survey(table_at(Path("loans.csv")), "repaid").features``
    """

    path: Path
    rows: int
    columns: tuple[SurveyedColumn, ...]
    label: str
    labels: Array

    def of(self, *kinds: ColumnKind) -> list[SurveyedColumn]:
        """Return the columns of these kinds."""
        return [column for column in self.columns if column.kind in kinds]

    def without(self, names: Sequence[str]) -> Survey:
        """Return the survey without some columns."""
        return replace(self, columns=tuple(column for column in self.columns if column.name not in names))

    @property
    def features(self) -> list[str]:
        """The names of the columns that a model can read: numbers and categories."""
        return [column.name for column in self.of("number", "category")]

    @cached_property
    def target(self) -> EncodedLabels:
        """The encoded labels. Whole numbers that could be classes or amounts count as amounts (``ambiguous``).

        Raises DataError for labels that cannot be learnt, such as those that are all the same.
        """
        where = f"{self.path}, column {self.label!r}"
        try:
            return encode(self.labels, "auto", where)
        except DataError:
            with suppress(DataError):
                return encode(self.labels, "regression", where)
            raise

    @property
    def ambiguous(self) -> bool:
        """Whether a scenario has to say which task it is."""
        return not self.target.guessed

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each class, the rarest first; empty for regression."""
        names = self.target.class_names
        counts = np.bincount(self.target.values, minlength=len(names)).tolist() if names else []
        return dict(sorted(zip(names, counts, strict=True), key=lambda pair: pair[1]))


def survey(table: Table, label: str, categorical: Sequence[str] = ()) -> Survey:
    """Say what the columns of a table hold; ``categorical`` ones are categories whatever they hold.

    Raises DataError if the label is absent or has empty cells.
    """
    labels = table.column(label, "label")
    columns = tuple(_surveyed(table, name, name in categorical) for name in table.names if name != label)
    return Survey(table.path, table.columns.num_rows, columns, label, labels)


def table_at(path: Path, text: Sequence[str] = ()) -> Table:
    """Read a CSV or Parquet file; ``text`` are columns to read as they are written (see ``read_table``).

    Raises DataError for another ending, and a file that cannot be read.
    """
    if not path.name.endswith(TABLES):
        ending = path.suffix or "no ending"
        raise DataError(f"cannot tell the format from {ending!r}", str(path), ", ".join(TABLES), "convert the file")
    return read_table(path, text=text)


def _surveyed(table: Table, name: str, categorical: bool) -> SurveyedColumn:
    try:
        column = table.plain(name, "a column")
    except DataError:  # nested values, or text that is not UTF-8
        return SurveyedColumn(name, "other", int(table.columns.column(name).null_count), 0)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    if is_text(column.type):  # as the reader of categories sees it, an empty cell is a gap
        column = pc.if_else(pc.equal(column, ""), None, column)
    if pa.types.is_null(column.type):
        return SurveyedColumn(name, "other", len(column), 0)
    missing, distinct = int(column.null_count), int(pc.count_distinct(column, mode="only_valid").as_py())
    kind: ColumnKind = "category" if categorical else _kind(name, column, distinct)
    return SurveyedColumn(name, kind, missing, distinct)


def _kind(name: str, column: pa.ChunkedArray, distinct: int) -> ColumnKind:
    rows, kind = len(column), column.type
    if is_text(kind):
        if distinct == rows and not pc.any(pc.match_substring_regex(column, r"\s")).as_py():
            return "id"
        return "category" if 0 < distinct <= min(MOST_CATEGORIES, max(2, rows // 2)) else "text"
    if pa.types.is_temporal(kind):
        return "time"
    if not (is_number(kind) or pa.types.is_decimal(kind)):
        return "other"
    if column.null_count or distinct < rows:
        return "number"
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
    counts = rows > 1 and bool(values[0] in (0, 1) and (np.diff(values) == 1).all())
    return "id" if counts or numbers_rows(name, values) else "number"


_NUMBERING = re.compile(r"|unnamed: ?\d+|__index_level_\d+__|(.*[\W_])?(id|uid|uuid|guid|index|idx)", re.IGNORECASE)
"""Names of columns that number the samples, as people and programs write them (pandas: an index without a name)."""
_CAMEL = re.compile(r".*[a-z](Id|ID|Uid|UID|Index|Idx)")


def numbers_rows(name: str, values: Array) -> bool:
    """Return whether a column has the name and the values of a number of each sample."""
    if not (_NUMBERING.fullmatch(name) or _CAMEL.fullmatch(name)) or len(values) < 2:
        return False
    return bool((values == np.floor(values)).all()) and len(np.unique(values)) == len(values)
