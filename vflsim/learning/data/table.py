"""CSV and Parquet files: named columns, strictly read."""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from vflsim.errors import DataError
from vflsim.files import (
    ALLOWED,
    Unpacked,
    UnusableFileError,
    beginning,
    bytes_text,
    decimal_of,
    delimiter_of,
    must_fit,
    opened,
    size,
)
from vflsim.learning.data.raw import Array, View, nearest, numbers

_PER_CELL = 16
"""Bytes of memory for a number of a table: as read, and in the matrix of features."""


_BLOCK, _LARGEST_BLOCK, _LINES = 1 << 20, 1 << 28, 256
"""Bytes of a CSV parsed at a time: at least the first, and, up to the second, so many lines."""
GAPS = frozenset(pa.csv.ConvertOptions().null_values)
"""The texts that stand for a missing number."""
_IN_UTF_8 = "save the file as UTF-8, such as by `iconv -f ISO-8859-1 -t UTF-8 FILE > NEW`"
_NOT_UTF_8 = re.compile(r"column #(\d+): Row #(\d+): .*invalid UTF8")


@dataclass(frozen=True)
class Table:
    """Columns by name, with enough memory of the file to say where a value stands.

    ``decimal`` is the decimal point of numbers in columns that were read as text.
    """

    path: Path
    columns: pa.Table
    place: Callable[[int], str]
    decimal: str = "."

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return int(self.columns.nbytes)

    @property
    def names(self) -> list[str]:
        """Names of the columns in file order."""
        return list(self.columns.column_names)

    def column(self, name: str, role: str) -> Array:
        """Return one column (rows,) without gaps; a DataError names its ``role`` (label, id, group)."""
        if name not in self.columns.column_names:
            what = f"has no column {name!r} (the {role})"
            raise DataError(what, str(self.path), nearest(name, self.names), f"correct `{role}` in the data section")
        column = self.plain(name, f"the {role}")
        empty = (pc.equal(column, "") if is_text(column.type) else column.is_null()).fill_null(True)
        if count := pc.sum(empty).as_py():
            row = int(np.argmax(empty.to_numpy()))
            what = f"{self.place(row)}, column {name!r} (the {role}) is empty ({count} in all)"
            raise DataError(what, str(self.path), "a value in every row", "fill the gaps or remove the rows before")
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.string())
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        if is_text(column.type):
            return np.asarray(self._with_points(column).to_pylist(), dtype=np.str_)
        if not is_number(column.type):
            raise self._ill_typed(name, f"the {role}", column.type, "numbers or UTF-8 text")
        return np.asarray(column.to_numpy())

    def view(self, name: str, leave_out: Sequence[str], categorical: Sequence[str] = (), gaps: bool = False) -> View:
        """Return the remaining columns as a float64 matrix (rows, features); of ``categorical`` ones, the categories.

        An empty cell is a category, too. With ``gaps``, empty cells of other columns are NaN.
        """
        names = tuple(name for name in self.names if name not in leave_out)
        if not names:
            raise DataError("has no feature column left", str(self.path), "at least one besides label, id and group")
        if unknown := [column for column in categorical if column not in names]:
            what = f"has no categorical column {unknown[0]!r}"
            raise DataError(what, str(self.path), nearest(unknown[0], names), "correct `categorical`")
        values = np.empty((self.columns.num_rows, len(names)))
        known: list[tuple[str, ...]] = [()] * len(names)
        for index, column in enumerate(names):
            if column in categorical:
                values[:, index], known[index] = self._categories(column)
            else:
                values[:, index] = self._numeric(column)
        values = numbers(values, str(self.path), names, self.place, gaps)
        return View(name, values, names, categories=tuple(known) if any(known) else ())

    def views(self, leave_out: Sequence[str], categorical: Sequence[str] = (), gaps: bool = False) -> tuple[View, ...]:
        """Return the remaining columns as one view."""
        return (self.view(self.path.name, leave_out, categorical, gaps),)

    def _categories(self, name: str) -> tuple[Array, tuple[str, ...]]:
        """Return the number of each cell's category, and their names in the order of the file; empty cells are one."""
        column = self.plain(name, "categorical")
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        elif is_text(column.type):
            column = column.fill_null("")
        encoding = column.combine_chunks().dictionary_encode(null_encoding="encode")
        try:
            names = encoding.dictionary.to_pylist()
        except (ValueError, OverflowError) as error:  # times that Python cannot write
            raise self._ill_typed(name, "categorical", f"{column.type}: {error}", "text, numbers or times") from error
        return np.asarray(encoding.indices), tuple("" if each is None else str(each) for each in names)

    def _with_points(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return text with decimal points in the place of commas, if these make all of it numbers."""
        if self.decimal == ".":
            return column
        try:
            pointed = pc.replace_substring(column, self.decimal, ".")
            pointed.cast(pa.float64())
        except pa.ArrowInvalid:
            return column
        return pointed

    def plain(self, name: str, role: str) -> pa.ChunkedArray:
        """Return a column as numbers, text, bytes or times. DataError for nested ones, and text that is not UTF-8."""
        column = self.columns.column(name)
        kind = column.type
        try:
            if isinstance(column.type, pa.BaseExtensionType):
                column = column.cast(column.type.storage_type)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_string_view(column.type):
                column = column.cast(pa.large_string())
            if pa.types.is_nested(column.type):
                raise self._ill_typed(name, role, kind, "one number, text or time in each row")
            column.validate(full=True)
        except pa.ArrowException as error:
            raise self._ill_typed(name, role, f"{kind}: {error}", "numbers, UTF-8 text or times") from error
        return column

    def _ill_typed(self, name: str, role: str, kind: object, allowed: str) -> DataError:
        text = str(kind).splitlines()[0]
        what = f"column {name!r} ({role}) is of type {text if len(text) <= 120 else text[:119] + '…'}"
        return DataError(what, str(self.path), allowed, f"convert it before, or leave it out with `drop: [{name}]`")

    def _numeric(self, name: str) -> Array:
        column = self.plain(name, "a feature")
        kind = column.type
        remedy = f"encode the column as numbers, or leave it out with `drop: [{name}]`"
        if pa.types.is_null(kind):
            raise DataError(f"column {name!r} is empty", str(self.path), "numbers in every feature column", remedy)
        if not is_number(kind):
            if pa.types.is_decimal(kind):
                return np.asarray(column.cast(pa.float64()).to_numpy())
            try:
                row, value = _first_text(column)
            except (ValueError, OverflowError) as error:  # times that Python cannot write
                raise self._ill_typed(name, "a feature", kind, "numbers in every feature column") from error
            what = f"{self.place(row)}, column {name!r} is {value!r}, which is not a number"
            if isinstance(value, str) and "," in value:
                remedy = f"write it with a decimal point, and without thousands' separators; or {remedy}"
            raise DataError(what, str(self.path), "numbers in every feature column", remedy)
        if column.null_count:  # arrow keeps gaps apart from numbers; as NaN they meet the common check
            column = column.cast(pa.float64())
        return np.asarray(column.to_numpy())


def _parquet(path: Path, held: int) -> pa.Table:
    with opened(path) as source, pa.parquet.ParquetFile(source) as file:
        metadata = file.metadata
        unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        cells = metadata.num_rows * metadata.num_columns  # runs of equal values take hardly any bytes
        needed = max(unpacked, _PER_CELL * cells) + held
        must_fit(needed, f"a table of {metadata.num_rows:,} rows and {metadata.num_columns:,} columns")
        return file.read(use_threads=False)


def _csv(path: Path, skip_lines: int, held: int, text: Sequence[str]) -> tuple[pa.Table, str]:
    packed = path.suffix == ".gz"
    start = beginning(path, packed)
    delimiter = delimiter_of(start, skip_lines)
    decimal = decimal_of(start, delimiter).decode()
    cells = start.count(delimiter) + start.count(b"\n") + 1
    line = start.find(b"\n") + 1 or len(start)
    per_byte = max(1.0, _PER_CELL * cells / max(1, len(start)))
    with opened(path) as file:
        long = size(file)
        must_fit(per_byte * long + held, f"a file of {bytes_text(long)}")
        columns = pa.csv.read_csv(
            pa.PythonFile(Unpacked(file, per_byte), mode="r") if packed else file,
            # One thread names the line. A block becomes an array a column: of wide tables it must hold many lines.
            read_options=pa.csv.ReadOptions(
                use_threads=False, skip_rows=skip_lines, block_size=min(max(_BLOCK, _LINES * line), _LARGEST_BLOCK)
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter.decode()),
            convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()), decimal_point=decimal),
        )
    for place, column in enumerate(columns.column_names):
        if column in text:  # spaces beside a delimiter are no part of a field, as in numbers
            columns = columns.set_column(place, column, pc.utf8_trim_whitespace(columns.column(place)))
    return columns, decimal


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds whole numbers, floats or booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _first_text(column: pa.ChunkedArray) -> tuple[int, object]:
    for row, value in enumerate(column):
        try:
            float(value.as_py())
        except (TypeError, ValueError):
            if value.is_valid and value.as_py() not in GAPS:
                return row, value.as_py()
    return 0, column[0].as_py()


def read_table(
    path: Path, skip_lines: int = 0, drop: Sequence[str] = (), held: int = 0, text: Sequence[str] = ()
) -> Table:
    """Read a .csv, .csv.gz or .parquet file, except the columns to drop; ``held`` bytes are in memory already.

    ``skip_lines`` stand above a CSV's header. Columns of ``text`` are read from a CSV as they are written: 01 is not 1,
    and NA is text; any other column is numbers, or else text. Every CSV line must have as many fields as the header.
    Raises DataError when the file is absent, empty, ragged, damaged, too large, or names a column twice.
    """
    try:
        if path.suffix == ".parquet":
            columns, decimal = _parquet(path, held), "."
        else:
            columns, decimal = _csv(path, skip_lines, held, text)
        names = columns.column_names
    except FileNotFoundError as error:
        raise DataError("no such file", str(path), "", "correct the path in the data section") from error
    except UnusableFileError as error:
        raise DataError(f"cannot be read: {error}", str(path), ALLOWED) from error
    except UnicodeDecodeError as error:
        what = f"a column's name is not UTF-8: it holds the byte 0x{error.object[error.start]:02x}"
        raise DataError(what, str(path), "UTF-8 text", _IN_UTF_8) from error
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        if not_utf_8 := _NOT_UTF_8.search(str(error)):
            what = f"column {int(not_utf_8[1]) + 1} of the line holds bytes that are not UTF-8"
            raise DataError(what, f"{path}:{not_utf_8[2]}", "UTF-8 text", _IN_UTF_8) from error
        what = "cannot be read: " + str(error).replace("Row #", "line ")
        allowed = "an intact Parquet file" if path.suffix == ".parquet" else "UTF-8 CSV, one header, equally long lines"
        raise DataError(what, str(path), allowed, "mend the file") from error
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise DataError(f"column {twice[0]!r} stands there twice", str(path), "unique names", "rename one of them")
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise DataError(f"has no column {unknown[0]!r} to drop", str(path), nearest(unknown[0], names))
    columns = columns.drop_columns(list(drop))
    if columns.num_rows == 0:
        raise DataError("holds no rows", str(path), "at least one row of data")
    if path.suffix == ".parquet":
        return Table(path, columns, lambda row: f"row {row + 1}")
    return Table(path, columns, lambda row: f"line {row + 2 + skip_lines}", decimal)
