"""Observed delays from a file: CSV, Parquet, NPY, or text with one number a line."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vflsim.delimiters import decimal_of, delimiter_of
from vflsim.files import array_of, beginning, bytes_text, must_fit, opened, size
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import TIME

if TYPE_CHECKING:
    import pandas as pd

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns", "min", "h"]
FORMATS = ".csv, .parquet, .npy, .txt"
MAX_VALUES = 20_000_000
_PER_CELL = 16
"""Bytes of memory for a value, or a character of one, while a file is read."""


def read_observed(file: str | Path, column: str | None = None, unit: TimeUnit = "s") -> Floats:
    """Read the delays of a file, in seconds, sorted (shape (n,), n ≥ 1; read-only).

    ``column`` names a column of a table; it may be omitted where there is only one. Raises ValueError for a
    missing or unreadable file, and for values that are no delays, with the place of the first one.
    """
    path = Path(file)
    try:
        with opened(path) as there:
            state = os.fstat(there.fileno())
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or error}; allowed: a file ({FORMATS})") from None
    return _read(path.resolve(), column, unit, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=16)
def _read(path: Path, column: str | None, unit: TimeUnit, state: tuple[int, int]) -> Floats:
    """Read a file once per ``state`` (time and size), since every client may name it."""
    found = _columns(path, column)
    values = _numbers(path, found)
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


def _numbers(path: Path, found: pd.Series[float]) -> Floats:
    """Give the values as floats. Raises ValueError if one is no delay."""
    import pandas as pd

    if not 0 < len(found) <= MAX_VALUES:
        raise ValueError(f"{path} has {len(found):,} values; allowed: 1 to {MAX_VALUES:,}")
    if found.dtype.kind in "bcmM":
        raise ValueError(f"{path} holds {found.dtype} values; allowed: numbers (and `unit:` for theirs)")
    values = pd.to_numeric(found, errors="coerce").to_numpy(dtype=np.float64, na_value=math.nan)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        first = found.iloc[int(wrong[0])]
        shown = (
            "nothing"
            if pd.isna(first) and not isinstance(first, str)
            else repr(getattr(first, "item", lambda: first)())
        )
        more = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        raise ValueError(
            f"{path}: {shown} at value {wrong[0] + 1:,} is not a delay{more}; allowed: finite numbers, at least 0"
        )
    return values


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
