"""Numbers from files, strictly read: observed delays, times, and what traces and matrices are written as."""

from __future__ import annotations

import csv
import io
import math
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.files import (
    PER_CHARACTER,
    array_of,
    beginning,
    bytes_text,
    decimal_of,
    delimiter_of,
    must_fit,
    opened,
    size,
    text,
)
from vflsim.timing.floats import Floats
from vflsim.timing.profile import StepProfile
from vflsim.vocabulary.quantities import BANDWIDTH, TIME

if TYPE_CHECKING:
    import pandas as pd


TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns", "min", "h"]
FORMATS = ".csv, .parquet, .npy, .txt"
MAX_VALUES = 20_000_000
_PER_CELL = 16
"""Bytes of memory for a value, or a character of one, while a file is read."""


Stamp: TypeAlias = tuple[int, int]


def stamp_of(file: str | Path, allowed: str = "a readable file") -> Stamp:
    """Give time of change (ns) and size, which distinguish a file from a later one of the same name."""
    try:
        with opened(file) as source:
            state = os.fstat(source.fileno())
    except OSError as error:
        raise ValueError(f"cannot read {str(file)!r}: {error.strerror or error}; allowed: {allowed}") from None
    return state.st_mtime_ns, state.st_size


def text_of(file: str, encoding: str, allowed: str) -> str:
    """Read a text. Raises ValueError for a file that cannot be read, or is none."""
    try:
        return text(file, encoding)
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise ValueError(f"cannot read {file!r}: {reason}; allowed: {allowed}") from None


def read_observed(file: str | Path, column: str | None = None, unit: TimeUnit = "s") -> Floats:
    """Read the delays of a file, in seconds, sorted (shape (n,), n ≥ 1; read-only).

    ``column`` names a column of a table; it may be omitted where there is only one. Raises ValueError for a
    missing or unreadable file, and for values that are no delays, with the place of the first one.
    """
    stamp = stamp_of(file, f"a file ({FORMATS})")  # first: it refuses a link to itself
    return _read(Path(file).resolve(), column, unit, stamp)


@lru_cache(maxsize=16)
def _read(path: Path, column: str | None, unit: TimeUnit, _: Stamp) -> Floats:
    """Read a file once per stamp, since every client may name it."""
    values = _numbers(path, _columns(path, column))
    factor = TIME.units[unit]
    values = np.sort(values * factor.numerator / factor.denominator)  # 5 ms is exactly the float 0.005
    if not math.isfinite(values[-1]):
        raise ValueError(f"{path}: {values[-1]:g} s is not a delay; allowed: finite numbers, at least 0")
    values.setflags(write=False)
    return values


def _columns(path: Path, column: str | None) -> pd.Series[float]:
    """Give the values of the file."""
    import pandas as pd
    import pyarrow as pa

    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            array = array_of(path)
            table = pd.DataFrame(array.reshape(len(array), -1)) if array.ndim else pd.DataFrame([array])
        elif suffix == ".parquet":
            table = _parquet(path)
        elif suffix == ".csv":
            table = _delimited(path)
        elif suffix in (".txt", ".dat", ""):
            table = _csv(path, sep=r"\s+", header=None)
        else:
            raise ValueError(f"{path}: files called {suffix} cannot be read; allowed: {FORMATS}")
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty; allowed: at least one delay") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: not readable as {suffix or 'text'} ({error}); allowed: {FORMATS}") from None
    names = [str(name) for name in table.columns]
    if column is None and len(names) != 1:
        raise ValueError(f"{path} has {len(names)} columns; allowed: `column:` with one of {_listed(names)}")
    if column is not None and column not in names:
        raise ValueError(f"{path} has no column {column!r}; allowed: {_listed(names)}")
    return table.iloc[:, 0 if column is None else names.index(column)]


def _parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet

    with opened(path) as source, pyarrow.parquet.ParquetFile(source) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        must_fit(_PER_CELL * rows * columns, f"a table of {rows:,} rows and {columns:,} columns")
        read = file.read()
    table: pd.DataFrame = read.to_pandas()
    return table


def _delimited(path: Path) -> pd.DataFrame:
    """Read a CSV with the delimiter and the decimal point that its beginning has, with or without a header."""
    lines = [line for line in beginning(path, packed=False).splitlines() if not line.lstrip().startswith(b"#")]
    start = b"\n".join(lines)
    delimiter = delimiter_of(start)
    header, row = [*lines, b"", b""][:2]
    if delimiter not in header and delimiter in row and not row.rstrip().endswith(delimiter):
        what = f"the first line has one field, and the next one has {row.count(delimiter) + 1}"
        raise ValueError(f"{path}: {what}; allowed: equally long lines, numbers with a decimal point")
    options: dict[str, Any] = {
        "skipinitialspace": True,
        "sep": delimiter.decode(),
        "decimal": decimal_of(start, delimiter).decode(),
    }
    table = _csv(path, **options)
    headed = not all(_is_number(str(name).replace(options["decimal"], ".")) for name in table.columns)
    return table if headed else _csv(path, **options, header=None)


def _csv(path: Path, **options: Any) -> pd.DataFrame:
    import pandas as pd

    with opened(path) as file:
        must_fit(_PER_CELL * size(file), f"a file of {bytes_text(size(file))}")
        table: pd.DataFrame = pd.read_csv(file, comment="#", **options)
        return table


def _numbers(path: Path, column: pd.Series[float]) -> Floats:
    """Give the values as floats. Raises ValueError if one is no delay."""
    import pandas as pd

    if not 0 < len(column) <= MAX_VALUES:
        raise ValueError(f"{path} has {len(column):,} values; allowed: 1 to {MAX_VALUES:,}")
    if column.dtype.kind in "bcmM":
        raise ValueError(f"{path} holds {column.dtype} values; allowed: numbers (and `unit:` for theirs)")
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=math.nan)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        first = column.iloc[int(wrong[0])]
        absent = pd.isna(first) and not isinstance(first, str)
        shown = "nothing" if absent else repr(getattr(first, "item", lambda: first)())
        more = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        raise ValueError(
            f"{path}: {shown} at value {wrong[0] + 1:,} is not a delay{more}; allowed: finite numbers, at least 0"
        )
    return values


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


_FEW = 3


def columns_of(file: str, names: tuple[str, ...]) -> Floats:
    """Give the numbers in ``file``, shape (rows, columns): one column for each of ``names``, in that order.

    ``.npy`` holds such an array (one column: also a plain vector); any other file is read as CSV: numbers as Python
    writes them, with or without a header, without empty lines and lines that begin with ``#``. Raises ValueError
    for unreadable and empty files, other columns, and cells that are no numbers.
    """
    path = Path(file)
    try:
        table = table_of(path, _named(names), len(names)) if path.suffix == ".npy" else _rows(path, names)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read {file!r}: {reason}; allowed: a CSV or NPY file") from None
    if not len(table):
        raise ValueError(f"{file!r} holds no numbers; allowed: {_named(names)}, at least one row")
    return table


def table_of(path: Path, allowed: str, columns: int | None = None) -> Floats:
    """Give the numbers in an ``.npy`` file, (rows, columns). Raises ValueError for other arrays."""
    try:
        array = array_of(path)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be used: {error}; allowed: {allowed}") from None
    table = array[:, None] if array.ndim == 1 else array
    if table.ndim != 2 or table.shape[1] != (columns or table.shape[1]) or table.dtype.kind not in "iuf":
        raise ValueError(f"{str(path)!r} is an array of shape {array.shape}, type {array.dtype}; allowed: {allowed}")
    return np.asarray(table, dtype=np.float64)


def _rows(path: Path, names: tuple[str, ...]) -> Floats:
    rows: list[list[float]] = []
    with opened(path) as file:
        must_fit(PER_CHARACTER * size(file), f"a file of {bytes_text(size(file))}")
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader, first = csv.reader(lines, skipinitialspace=True), True
        for cells in reader:
            if not "".join(cells).strip() or cells[0].lstrip().startswith("#"):
                continue
            try:
                row = [float(cell) for cell in cells]
            except ValueError:
                if not first:
                    what = f"{path}:{reader.line_num}: {','.join(cells)!r} is not {_named(names)}"
                    raise ValueError(f"{what}; allowed: numbers") from None
                row = []  # the header
            first = False
            if len(cells) != len(names):
                what = f"{path}:{reader.line_num}: {len(cells)} columns"
                raise ValueError(f"{what}; allowed: {_named(names)}")
            if row:
                rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))


def ascending(times: Floats, file: str) -> None:
    """Raise ValueError unless ``times`` (n,) are finite, at least 0, and never descend."""
    wrong = ~(np.isfinite(times) & (times >= np.maximum.accumulate(np.concatenate(([0.0], times[:-1])))))
    if wrong.any():
        where = [f"{times[k]:g} (number {k + 1})" for k in np.flatnonzero(wrong)[:_FEW]]
        raise ValueError(f"{file}: out of order: {', '.join(where)}; allowed: finite times from 0 s on that ascend")


def _named(names: tuple[str, ...]) -> str:
    return f"the column{'s' if len(names) > 1 else ''} {', '.join(names)}"


# --- traces of bandwidths ---------------------------------------------------------------------------------------------


PACKET_BITS = 8 * 1500
"""The bits of one line of a Mahimahi trace."""
MAX_WINDOWS = 10_000_000
"""The most windows of a trace: 11 days in windows of 0.1 s."""
_KEPT = 1024  # traces


def rate_trace(file: str, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    """Give the bandwidth (bit/s) of a CSV file with the columns time and rate, each in the unit given.

    Raises ValueError, naming file, row and value, for a file that cannot be read, rows that are not two numbers, times
    that do not ascend from 0, negative rates, and a ``period`` (s) that ends before the last time.
    """
    return _rate_trace(file, stamp_of(file), time_unit, rate_unit, period)


@lru_cache(_KEPT)
def _rate_trace(file: str, _: Stamp, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    table = columns_of(file, ("time", "rate"))
    per_time, per_rate = TIME.units[time_unit], BANDWIDTH.units[rate_unit]
    times = table[:, 0] * per_time.numerator / per_time.denominator  # exact where * 0.001 would not be
    rates = table[:, 1] * int(per_rate)
    for wrong, what, allowed in (
        (~(rates >= 0), "rate", "numbers of at least 0"),
        (~np.isfinite(times), "time", "finite numbers"),
        (np.diff(times, prepend=-1.0) <= 0, "time", "times that ascend, from 0 on"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            value = table[row, 0 if what == "time" else 1]
            raise ValueError(f"{file}: {what} {value:g} in row {row + 1}; allowed: {allowed}")
    if times[0] != 0:
        raise ValueError(f"{file}: the first time is {table[0, 0]:g}; allowed: 0, from where on its rate holds")
    if period is not None and period <= times[-1]:
        raise ValueError(f"period = {period:g} s, but {file} lasts until {times[-1]:g} s; allowed: a longer period")
    return StepProfile(times.tolist(), rates.tolist(), period)


def packet_trace(file: str, window: float, repeated: bool) -> StepProfile:
    """Give the bandwidth (bit/s) of a Mahimahi packet trace, averaged over windows of ``window`` seconds.

    Opportunity t (ms) counts for the window (a, b] that it lies in, 0 for the first; the trace, and its last window,
    end with the last opportunity. Raises ValueError, naming file, line and value, for a file that cannot be read, lines
    that are no whole numbers ≥ 0, and times that descend or are all 0.
    """
    return _packet_trace(file, stamp_of(file), window, repeated)


@lru_cache(_KEPT)
def _packet_trace(file: str, _: Stamp, window: float, repeated: bool) -> StepProfile:
    stamps = _time_stamps(file)
    end, width = int(stamps[-1]), 1000 * window
    if end / width > MAX_WINDOWS:
        raise ValueError(
            f"{file}: its last stamp, {end:,} ms, makes {end / width:,.3g} windows of {window:g} s; "
            f"allowed: up to {MAX_WINDOWS:,}; choose a wider window, or correct the stamps"
        )
    # Rounded, so that a stamp that is a multiple of the window lies in the window that it ends.
    windows = np.maximum(np.ceil(np.round(stamps / width, 9)).astype(np.int64) - 1, 0)
    packets = np.bincount(windows)
    starts = np.arange(len(packets)) * width
    lengths = np.minimum(width, end - starts)
    times, rates = starts / 1000, packets * PACKET_BITS / (lengths / 1000)
    return StepProfile(times.tolist(), rates.tolist(), end / 1000 if repeated else None)


def _time_stamps(file: str) -> NDArray[np.int64]:
    """The time stamps of a packet trace, in ms."""
    stamps: list[int] = []
    last = 0
    for number, line in enumerate(text_of(file, "ascii", "a packet trace of Mahimahi").splitlines(), start=1):
        word = line.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and len(word) < 16):
            raise ValueError(f"{file}:{number}: {word[:40]!r}; allowed: a whole number of milliseconds a line")
        stamp = int(word)
        if stamp < last:
            raise ValueError(f"{file}:{number}: {stamp} ms after {last} ms; allowed: time stamps that never descend")
        stamps.append(stamp)
        last = stamp
    if not last:
        what = "holds no time stamps" if not stamps else "has no time stamp above 0"
        raise ValueError(f"{file!r} {what}; allowed: a packet trace of Mahimahi, milliseconds line by line")
    return np.array(stamps, np.int64)
