"""Input and output of the rules about a finished run: the rows of its tables, and sentences about broken rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import RunTables


@dataclass(frozen=True, slots=True)
class Names:
    """A column of names: ``codes``, shape (rows,), are places in ``known``; null is −1."""

    codes: NDArray[np.int32]
    known: tuple[str, ...]

    def matching(self, meant: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Mark the rows whose name is ``meant``; null never is."""
        marks = np.array([*map(meant, self.known), False])
        marked: NDArray[np.bool_] = marks[self.codes]  # code −1 (null) selects the last
        return marked

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
        self._selection: dict[str, Any] = self._columns

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
        some._columns, some._selection = self._columns, {}
        some._places = places if self._places is None else self._places[places]
        some._length = len(places)
        return some

    def groups(self, *columns: str) -> Iterator[tuple[tuple[str, ...], NDArray[np.intp]]]:
        """Yield the names in ``columns`` and the places of the rows with them, by first appearance; skip nulls."""
        codes = [self.names(column).codes for column in columns]
        order = np.lexsort(codes[::-1])  # stable: places ascend within a group
        changes = np.logical_or.reduce([np.diff(each[order]) != 0 for each in codes])
        groups = np.split(order, np.flatnonzero(changes) + 1) if len(order) else []
        for places in sorted(groups, key=lambda group: int(group[0])):
            names = tuple(self.names(column).at(int(places[0])) for column in columns)
            if None not in names:
                yield tuple(str(name) for name in names), places

    def _of(self, column: str) -> Any:
        if column not in self._selection:
            if column not in self._columns:
                self._columns[column] = _converted(self._table.column(column))
            if self._places is not None:
                self._selection[column] = _selected(self._columns[column], self._places)
        return self._selection[column]


def _converted(column: pa.ChunkedArray) -> NDArray[Any] | Names:
    if not pa.types.is_dictionary(column.type):
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return Names(codes, tuple(array.dictionary.to_pylist()))


def _selected(values: NDArray[Any] | Names, places: NDArray[np.intp]) -> NDArray[Any] | Names:
    return Names(values.codes[places], values.known) if isinstance(values, Names) else values[places]


ROUNDING = 1e-12
"""Tolerance of a sum of times, relative to 1 s + the time."""
SHOWN = 3
"""Examples shown per broken rule; the rest are counted."""


class Frames:
    """The rows of one run's tables (None: not recorded) and the run's end (NaN: no metrics row).

    ``cut``: the run ended in an error, without a last row of metrics. Its end is then that of whatever ended last.
    """

    def __init__(self, tables: RunTables, cut: bool = False) -> None:
        self.cut = cut
        self.metrics = Rows(tables.metrics)
        self.rounds = None if tables.rounds is None else Rows(tables.rounds)
        self.events = None if tables.events is None else Rows(tables.events)
        self.end = float(self.metrics["time_s"][-1]) if len(self.metrics) else float("nan")
        for rows in (self.rounds, self.events) if cut else ():
            if rows is not None and len(rows):
                self.end = float(np.fmax(self.end, np.fmax.reduce(rows["end_s"])))
        self._of: dict[str, Rows] = {}

    def of(self, prefix: str) -> Rows:
        """Select the events whose kind begins with ``prefix``; events must have been recorded."""
        rows = self._of.get(prefix)
        if rows is None:
            assert self.events is not None
            rows = self._of[prefix] = self.events.where(self.events.names("kind").begin(prefix))
        return rows


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""A rule yields one sentence for every violation."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The indices of one party's activities of one kind: count, number of distinct ones, highest."""

    party: str
    kind: str
    count: int
    distinct: int
    highest: int


def numbered(events: Rows) -> tuple[NDArray[np.bool_], list[Numbers]]:
    """Mark ``events`` that repeat an index of their party and kind; also return the indices of each party and kind."""
    parties, kinds, numbers = events.names("party"), events.names("kind"), events["index"]
    party, kind = parties.codes, kinds.codes
    order = np.lexsort((numbers, kind, party))  # stable: the first of equal ones stays first
    others = np.flatnonzero((np.diff(party[order]) != 0) | (np.diff(kind[order]) != 0)) + 1
    again, series = np.zeros(len(events), bool), []
    for places in np.split(order, others) if len(order) else ():
        again[places[1:]] = np.diff(numbers[places]) == 0
        who, what = (str(names.at(places[0])) for names in (parties, kinds))
        series.append(Numbers(who, what, len(places), len(places) - int(again[places].sum()), int(numbers[places[-1]])))
    return again, series


def overlapping(events: Rows, column: str) -> NDArray[np.bool_]:
    """Mark ``events`` that begin before an earlier one with the same party in ``column`` has ended."""
    codes, start, end = events.names(column).codes, events["start_s"], events["end_s"]
    order = np.lexsort((end, start, codes))  # stable
    marks = np.zeros(len(events), bool)
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places) > 1 and codes[places[0]] >= 0:
            marks[places[1:]] = start[places[1:]] < np.fmax.accumulate(end[places])[:-1]
    return marks


def falls(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark ``values`` that are less than the one before, shape (values,)."""
    marks = np.zeros(len(values), bool)
    marks[1:] = values[1:] < values[:-1]
    return marks


def each(events: Rows, breaking: ArrayLike, sentence: str) -> Iterator[str]:
    """Yield a sentence for each of the first few ``events`` that break a rule, and the number of the others.

    ``breaking`` marks these events, shape (events,).
    """
    broken = np.flatnonzero(breaking)
    if not len(broken):
        return
    numbers = [events[name] for name in ("index", "start_s", "end_s")]
    party, kind, peer = (events.names(name) for name in ("party", "kind", "peer"))
    for row in broken[:SHOWN]:
        to = "" if peer.at(row) is None else f" to {peer.at(row)}"
        index, start, end = (values[row] for values in numbers)
        yield f"events: {party.at(row)}'s {kind.at(row)}{to} (index {index}, {start} s to {end} s) {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"
