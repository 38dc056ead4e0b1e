"""A survey of a table: what each column holds, how many cells are empty, how the label is spread."""

from __future__ import annotations

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
from vflsim.learning.data.labels import EncodedLabels, encode
from vflsim.learning.data.sources.raw import Array
from vflsim.learning.data.sources.table import Table, is_number, is_text, read_table
from vflsim.learning.data.sources.user import numbers_rows

ColumnKind = Literal["number", "category", "text", "id", "time", "other"]
TABLES = (".csv", ".csv.gz", ".parquet")
"""Endings of the files that are tables of named columns."""
MOST_CATEGORIES = 1000
"""A text with more different values is no category."""


@dataclass(frozen=True)
class SurveyedColumn:
    """A column of a table: its ``kind``, its number of ``missing`` cells and of ``distinct`` values among the others.

    A ``category`` is text with at most 1,000 values, each in two rows on average; an ``id`` has another value in each
    row, and is a text without spaces, or whole numbers under a name such as ``customer_id``; other texts are ``text``.
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
    return "id" if numbers_rows(name, np.asarray(column.cast(pa.float64()).to_numpy())) else "number"
