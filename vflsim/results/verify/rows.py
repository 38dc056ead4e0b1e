"""Rows of a table as NumPy columns, for rules that look at a few columns of many small tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Names:
    """A column of names: ``codes``, shape (rows,), are places in ``known``; null is −1."""

    codes: NDArray[np.int32]
    known: tuple[str, ...]

    def matching(self, meant: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Mark the rows whose name is ``meant``; null never is."""
        marks = np.array([*map(meant, self.known), False])
        found: NDArray[np.bool_] = marks[self.codes]  # code −1 (null) selects the last
        return found

    def are(self, name: str) -> NDArray[np.bool_]:
        """Mark the rows with this name."""
        return self.matching(name.__eq__)

    def among(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Mark the rows whose name is one of ``names``."""
        return self.matching(names.__contains__)

    def begin(self, prefix: str) -> NDArray[np.bool_]:
        """Mark the rows whose name begins with ``prefix``."""
        return self.matching(lambda name: name.startswith(prefix))

    def at(self, row: int) -> str | None:
        """Return the name of a row; None for null."""
        code = self.codes[row]
        return self.known[code] if code >= 0 else None

    def tolist(self) -> list[str | None]:
        """Return the name of every row."""
        named = (*self.known, None)
        return [named[code] for code in self.codes.tolist()]


class Rows:
    """All rows of an Arrow table, or some: numbers by ``rows[column]``, names by ``rows.names(column)``.

    Columns are converted when they are first asked for, once for all selections of a table. A null number is NaN.

    Example::

        events = Rows(table)
        slow = events.where(events["end_s"] - events["start_s"] > 1.0)
        slow.names("party").tolist()
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._places: NDArray[np.intp] | None = None
        self._length: int = table.num_rows
        self._columns: dict[str, Any] = {}
        self._own: dict[str, Any] = self._columns

    def __len__(self) -> int:
        return self._length

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self._table.column_names
        return names

    def __getitem__(self, column: str) -> NDArray[Any]:
        values: NDArray[Any] = self._of(column)
        return values

    def names(self, column: str) -> Names:
        """Return a column of names."""
        values: Names = self._of(column)
        return values

    def lists(self, column: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Flatten a column of lists; return the row of each value, and the values. All rows of the table only."""
        assert self._places is None, "lists of selected rows are never asked for"
        lists = self._table.column(column).combine_chunks()
        lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return np.repeat(np.arange(len(self)), lengths), lists.flatten().to_numpy(zero_copy_only=False)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
        """Select rows by marks or by places, in this order."""
        places: NDArray[np.intp] = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.intp)
        some = Rows(self._table)
        some._columns, some._own = self._columns, {}
        some._places = places if self._places is None else self._places[places]
        some._length = len(places)
        return some

    def groups(self, *columns: str) -> Iterator[tuple[tuple[str, ...], NDArray[np.intp]]]:
        """Yield the names in ``columns`` and the places of the rows with them, by first appearance; skip nulls."""
        codes = [self.names(column).codes for column in columns]
        order = np.lexsort(codes[::-1])  # stable: places ascend within a group
        changes = np.logical_or.reduce([np.diff(each[order]) != 0 for each in codes])
        groups = np.split(order, np.flatnonzero(changes) + 1) if len(order) else []
        for own in sorted(groups, key=lambda group: int(group[0])):
            names = tuple(self.names(column).at(int(own[0])) for column in columns)
            if None not in names:
                yield tuple(str(name) for name in names), own

    def _of(self, column: str) -> Any:
        if column not in self._own:
            if column not in self._columns:
                self._columns[column] = _converted(self._table.column(column))
            if self._places is not None:
                self._own[column] = _selected(self._columns[column], self._places)
        return self._own[column]


def _converted(column: pa.ChunkedArray) -> NDArray[Any] | Names:
    if not pa.types.is_dictionary(column.type):
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return Names(codes, tuple(array.dictionary.to_pylist()))


def _selected(values: NDArray[Any] | Names, places: NDArray[np.intp]) -> NDArray[Any] | Names:
    return Names(values.codes[places], values.known) if isinstance(values, Names) else values[places]
