"""Tables that a protocol records itself: each row is checked when it is added, and handles wait for their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from vflsim.errors import ProtocolError, VflsimError
from vflsim.learning.execution.operations import Handle
from vflsim.tables import arrow
from vflsim.vocabulary.on_demand import Tensor, dtype

TABLES = ("metrics", "rounds", "events", "energy_by_party", "answers", "arrivals")
"""The tables of vflsim's own."""
ADDED = ("time_s", "party")
"""The columns that every row gets."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_EXACT = 2**53
"""Larger whole numbers have no exact float."""
_TOO_LARGE = "whole numbers beyond 2^53 cannot stand beside fractions; record smaller numbers, or text"
_VALUES = "bool, int (64 bits), float, str, None, a list of these, a 0-d array or tensor, or a handle of a number"


class OwnTables:
    """The rows of every table that a protocol records, as plain values and handles.

    A column has values of one kind: bool, int and float together, text, or lists of one of them; None fits everywhere.
    Handles are never forced: ``settle`` puts their values in their place when the run has ended.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._columns: dict[str, dict[str, _Column]] = {}

    def add(self, what: str, added: Mapping[str, Any], fields: Mapping[str, Any], protocol: str = "") -> None:
        """Add a row to the table ``what``. Raises ``ProtocolError`` for a name or a value that cannot be written."""
        call = f"node.record({what!r}, …)" + (f" of {protocol}" if protocol else "")
        if not isinstance(what, str) or not _NAME.fullmatch(what) or what in TABLES:
            allowed = f"a file name of letters, digits, _ and -, other than {', '.join(TABLES)}"
            raise ProtocolError(f"{call}: a table cannot be called {what!r}", allowed=allowed)
        for name in fields:
            if name in ADDED or not name:
                what, allowed = f"{call}: a field cannot be called {name!r}", " and ".join(ADDED)
                raise ProtocolError(what, "", f"any name but {allowed}, which are added", "give it another name")
        columns = self._columns.setdefault(what, {})
        row = dict(added)
        for name, value in fields.items():
            try:
                row[name] = plain(value)
                column = columns.get(name, _Column()).with_one(row[name])
            except ValueError as error:
                raise _refused(f"{call}: {name}", value, error) from None
            columns[name] = column
        self.rows.setdefault(what, []).append(row)

    def settle(self, promised: Collection[Handle[Any]] | None = None) -> VflsimError | None:
        """Replace handles by their values, or by None where none has come; return the first error, if any.

        ``promised``: the handles that operations have promised; only those can be restored from a checkpoint.
        """
        first: VflsimError | None = None
        for what, rows in self.rows.items():
            for row in rows:
                for name, value in row.items():
                    if isinstance(value, Handle):
                        try:
                            row[name] = self._settled(what, name, value, promised)
                        except VflsimError as error:
                            row[name], first = None, first or error
        return first

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables, with the columns of all rows in the order in which they came."""
        return {what: self._table(what, rows) for what, rows in self.rows.items()}

    def _settled(self, what: str, name: str, handle: Handle[Any], promised: Collection[Handle[Any]] | None) -> Any:
        if not handle.ready:
            return None
        value, columns = handle.value, self._columns[what]
        try:
            if promised is not None and handle not in promised:
                raise ValueError("no operation promises it; name its handle in `promises`")
            cell = plain(value)
            columns[name] = columns[name].with_one(cell)
        except ValueError as error:
            raise _refused(f"node.record({what!r}, …): the value of a handle: {name}", value, error) from None
        return cell

    def _table(self, what: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        names = dict.fromkeys(name for row in rows for name in row)
        values = {name: [row.get(name) for row in rows] for name in names}
        return pa.table({name: self._array(what, name, column) for name, column in values.items()})

    def _array(self, what: str, name: str, values: Sequence[Any]) -> pa.Array:
        column = self._columns[what].get(name)
        if column is not None and column.awaited is not None and all(value is None for value in values):
            return pa.array(values, column.awaited)  # timing alone has no values
        return arrow.column(values)


class _Column:
    """The kind of a column's values so far; ``awaited`` is the type of the values of its handles."""

    def __init__(self, kind: str = "", large: bool = False, awaited: pa.DataType | None = None) -> None:
        self.kind, self.large, self.awaited = kind, large, awaited

    def with_one(self, value: Any) -> _Column:
        """Return the column with one value more. Raises ``ValueError`` if it does not fit."""
        if value is None:
            return self
        awaited, kind, large = self.awaited, _kind_of(value), self.large or _has_large(value)
        if isinstance(value, Handle):
            awaited = awaited or {"bool": pa.bool_(), "int": pa.int64()}.get(kind, pa.float64())
        kind = _both(self.kind, kind)
        if kind.endswith("float") and large:
            raise ValueError(_TOO_LARGE)
        return _Column(kind, large, awaited)


def plain(value: Any) -> Any:
    """Return a value of a row as Python's bool, int, float, str, list or None, or the handle of a number.

    Raises ``ValueError`` for any other value.
    """
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        if value.ndim:
            raise ValueError(f"it has the shape {tuple(value.shape)}; for one value `.item()`, for a list `.tolist()`")
        value = value.item()
    if isinstance(value, str):
        value.encode()  # a lone surrogate is no text
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError("it needs more than 64 bits; record a float, or text")
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        if any(isinstance(item, list | Handle) for item in items):
            raise ValueError("it is a list of lists or of handles; record each by itself")
        _kind_of(items)
        return items
    if isinstance(value, Handle):
        if value.shape or value.dtype.is_complex:
            raise ValueError(f"it is a handle of a tensor ({value.dtype}, {tuple(value.shape)}); promise one number")
        return value
    raise ValueError(f"it is of type {type(value).__name__}")


def _kind_of(value: Any) -> str:
    """Return the kind of a plain value: ``int``, ``list of int``, …; ``list`` for an empty one."""
    if isinstance(value, Handle):
        return "bool" if value.dtype == dtype("bool") else "float" if value.dtype.is_floating_point else "int"
    if not isinstance(value, list):
        return "text" if isinstance(value, str) else type(value).__name__
    kind = reduce(_both, [_kind_of(item) for item in value if item is not None], "")
    if kind == "float" and _has_large(value):
        raise ValueError(_TOO_LARGE)
    return f"list of {kind}" if kind else "list"


def _both(one: str, other: str) -> str:
    """Return the kind of a column with values of two kinds, "" if there are none. Raises ``ValueError`` otherwise."""
    for kind, wider in ((one, other), (other, one)):
        as_float = kind in ("int", "list of int") and kind.replace("int", "float") == wider
        if kind in ("", wider) or as_float or (kind == "list" and wider.startswith("list")):
            return wider
    raise ValueError(f"it is of kind {other}, and the column holds {one}; record values of one kind, or None")


def _has_large(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_large, value))
    return isinstance(value, int) and abs(value) > _EXACT


def _refused(where: str, value: Any, error: ValueError) -> ProtocolError:
    why, _, remedy = str(error).partition("; ")
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "…"
    return ProtocolError(f"{where} = {shown} cannot be recorded: {why}", allowed=_VALUES, remedy=remedy)
