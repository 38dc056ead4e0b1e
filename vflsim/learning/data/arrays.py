"""Files of arrays: NumPy archives, never unpickled, and MATLAB files, read by a process of its own."""

import lzma
import math
import os
import signal
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader, BytesIO
from pathlib import Path
from typing import cast

import numpy as np

from vflsim.errors import DataError
from vflsim.files import (
    ALLOWED,
    SHARE,
    UnusableFileError,
    bytes_text,
    machine_memory,
    must_be_no_bomb,
    must_fit,
    opened,
    parsed_json,
    read_array,
    size,
)
from vflsim.learning.data.raw import Array, View, nearest, numbers


@dataclass(frozen=True)
class Archive:
    """Arrays by key; the first axis of each counts the rows."""

    path: Path
    arrays: dict[str, Array]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(values.nbytes for values in self.arrays.values())

    @property
    def names(self) -> list[str]:
        """Keys in file order."""
        return list(self.arrays)

    def column(self, name: str, role: str) -> Array:
        """Return one array of shape (rows,); a DataError names its ``role`` (label, id, group)."""
        if name not in self.arrays:
            what = f"has no array {name!r} (the {role})"
            raise DataError(what, str(self.path), nearest(name, self.names), f"correct `{role}` in the data section")
        values = self.arrays[name]
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            what = f"array {name!r} (the {role}) has shape {values.shape}"
            raise DataError(what, str(self.path), "one value per row: shape (rows,)", "reshape it before saving")
        return values

    def views(self, leave_out: Sequence[str], categorical: Sequence[str] = (), gaps: bool = False) -> tuple[View, ...]:
        """Return the remaining arrays as views, in file order. Raises DataError for ``categorical`` ones.

        (rows,) is one column, (rows, features) a table, (rows, height, width) and (rows, channels, height, width) are
        images. If all are (rows,), they are the columns of one table. With ``gaps``, tables may hold NaN.
        """
        if categorical:
            what = f"{categorical[0]!r} is an array, and columns of tables are categorical"
            raise DataError(what, str(self.path), "CSV or Parquet files", "convert the file")
        arrays = {name: values for name, values in self.arrays.items() if name not in leave_out}
        if not arrays:
            raise DataError("has no features left", str(self.path), "at least one array besides label, id and group")
        if all(values.ndim == 1 for values in arrays.values()):
            columns = [numbers(array, f"{self.path}: array {name!r}", gaps=gaps) for name, array in arrays.items()]
            return (View("columns", np.stack(columns, axis=1), tuple(arrays)),)
        return tuple(self._view(name, values, gaps) for name, values in arrays.items())

    def _view(self, name: str, values: Array, gaps: bool) -> View:
        where = f"{self.path}: array {name!r}"
        if values.ndim == 1:
            return View(name, numbers(values, where, gaps=gaps)[:, np.newaxis], (name,))
        if values.ndim == 2:
            names = tuple(f"{name}{column}" for column in range(values.shape[1]))
            return View(name, numbers(values, where, names, gaps=gaps), names)
        if values.ndim in (3, 4):
            images = numbers(values, where)
            return View(name, images[:, np.newaxis] if values.ndim == 3 else images, pixels=True)
        allowed = "(rows,), (rows, features), (rows, height, width) or (rows, channels, height, width)"
        raise DataError(f"has shape {values.shape}", where, allowed, "reshape it before saving")


_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,  # a compression that Python lacks
    RuntimeError,  # encrypted
)
"""The errors of Python's zipfile for archives that are damaged, or that it cannot read."""


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            raise ValueError(f"{name!r} in it is no array (.npy)")
        if name in members:
            raise ValueError(f"array {name!r} stands in it twice")
        members[name] = member
    return members


def _array(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        try:
            return read_array(cast(BufferedIOBase, file), member.file_size)
        except ValueError as error:
            raise ValueError(f"array {name!r}: {error}") from None


def read_archive(path: Path, drop: Sequence[str] = (), held: int = 0) -> Archive:
    """Read the arrays of an .npz file, except those to drop; ``held`` bytes are in memory already.

    Raises DataError when the file is absent, damaged, too large, holds objects, or its arrays differ in their number of
    rows.
    """
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            members = _members(archive)
            unknown = [name for name in drop if name not in members]
            if unknown:
                raise DataError(f"has no array {unknown[0]!r} to drop", str(path), nearest(unknown[0], members))
            wanted = {name: member for name, member in members.items() if name not in drop}
            unpacked = sum(member.file_size for member in wanted.values())
            must_be_no_bomb(size(file), unpacked)
            must_fit(unpacked + held, f"an archive of {bytes_text(size(file))} that unpacks to {bytes_text(unpacked)}")
            arrays = {name: _array(archive, name, member) for name, member in wanted.items()}
    except FileNotFoundError as error:
        raise DataError("no such file", str(path), "", "correct the path in the data section") from error
    except UnusableFileError as error:
        raise DataError(f"cannot be read: {error}", str(path), ALLOWED) from error
    except _DAMAGED as error:
        what = f"cannot be read: {error}"
        allowed = "an intact .npz archive of numbers and strings (objects are refused: reading them can run code)"
        raise DataError(what, str(path), allowed, "save plain arrays with numpy.savez") from error
    if not arrays:
        raise DataError("holds no arrays", str(path), "features and a label")
    scalar = next((name for name, values in arrays.items() if values.ndim == 0), None)
    if scalar is not None:
        what = f"array {scalar!r} is a single value"
        raise DataError(what, str(path), "arrays with one entry per row", f"leave it out with `drop: [{scalar}]`")
    first, *others = arrays
    for name in others:
        if len(arrays[name]) != len(arrays[first]):
            what = f"array {name!r} has {len(arrays[name])} rows, {first!r} has {len(arrays[first])}"
            raise DataError(what, str(path), "equally many rows in every array", "save arrays of the same samples")
    if len(arrays[first]) == 0:
        raise DataError("holds no rows", str(path), "at least one row of data")
    return Archive(path, arrays)


_PROGRAM = Path(__file__).with_name("mat_program.py")
_SECONDS, _BYTES_PER_SECOND = 60.0, 1e6
"""How long reading may take, in seconds of the processor: far longer than it does."""
_WAITING = 60
"""Seconds of the clock for one of them: a process of a busy machine gets a small share of it."""
_ALLOWED = "an intact MATLAB file, v4 to v7.2 (MATLAB writes one with `save(name, '-v7')`)"
_INTACT = "delete the file and fetch it again, or put an intact copy in its place"


def read_views(path: Path, features: str = "X", labels: Sequence[str] = ("Y", "y")) -> tuple[list[Array], Array]:
    """Read the matrices (rows, features) of every view and the labels (rows,), by the first of its names that is there.

    SciPy reads it in a process of its own: damaged files can crash it. Raises DataError when the file is damaged, lacks
    a variable, or holds views with different numbers of rows.
    """
    try:
        with opened(path) as file:
            must_fit(2 * size(file), "the file")  # read by one process, handed to another
            cells, target = _handed_over(file, [features, *labels])
    except _RefusedError as refused:
        raise DataError(str(refused), str(path), _ALLOWED, _INTACT) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", str(path), _ALLOWED, _INTACT) from error
    if not cells:
        raise DataError(f"variable {features!r} is not a cell array", str(path), "one matrix per view", _INTACT)
    views, target = cells, np.ravel(target)
    for number, view in enumerate(views, start=1):
        if view.ndim != 2 or len(view) != len(target):
            what = f"view {number} has shape {view.shape}, but there are {len(target)} labels"
            raise DataError(what, str(path), "(rows, features) with one row per label", _INTACT)
    return views, target


class _RefusedError(Exception):
    """The reading process says what is wrong with the file."""


def _handed_over(file: BufferedReader, variables: Sequence[str]) -> tuple[list[Array], Array]:
    """Read the cells of the first variable, none if it is no cell array, and the label, in a process of its own.

    Raises _RefusedError for files that SciPy does not read, or that crash or occupy it; OSError and ValueError.
    """
    seconds = math.ceil(_SECONDS + size(file) / _BYTES_PER_SECOND)
    most = SHARE * machine_memory() / 2
    limits = (int(min(most, sys.maxsize)), seconds)
    search = os.pathsep.join(place for place in sys.path if place)  # SciPy may be where only this process looks
    environment = {**os.environ, "PYTHONPATH": search, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(_PROGRAM), *map(str, limits), *variables]
    try:
        done = subprocess.run(
            command, stdin=file, capture_output=True, env=environment, timeout=_WAITING * seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _RefusedError(f"cannot be read: reading it takes more than {_WAITING * seconds} s") from None
    if done.returncode == -signal.SIGXCPU:
        raise _RefusedError(f"cannot be read: reading it takes more than {seconds} s of the processor")
    line, _, content = done.stdout.partition(b"\n")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        ended = f"signal {-done.returncode}" if done.returncode < 0 else last or f"status {done.returncode}"
        raise _RefusedError(f"cannot be read: it crashes the process that reads it ({ended})")
    header = parsed_json(line)
    if "error" in header:
        raise _RefusedError(header["error"])
    stream = BytesIO(content)
    arrays = [read_array(stream, len(content)) for _ in range((header["cells"] or 0) + 1)]
    return arrays[:-1], arrays[-1]
