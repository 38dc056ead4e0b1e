"""Open users' files safely: regular files only, checked before they are read.

A path may lead to a pipe without a writer, to ``/dev/zero``, or to a small file that unpacks to all memory. Every
reader of users' files opens them here. A refused file raises an OSError, like a file without permission; readers add
its place in the scenario and the formats that they accept.

A file's content may take half of this machine's memory. The other half is for scaled rows, models and gradients.
Packed files that unpack to over 1 GiB and 200 times their size are refused, too: they are bombs, or better kept
unpacked.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALLOWED = "a regular file that fits into half of this machine's memory"
SHARE = 0.5
"""The share of the machine's memory that a file may take."""
BOMB_BYTES, BOMB_RATIO = 1 << 30, 200
"""A packed file is refused if it unpacks to more than both."""
PER_CHARACTER = 20
"""Bytes of memory per byte of text with numbers, while Python reads it line by line."""
JSON_DEPTH, JSON_WHOLE = 100, 2.0**64
"""Most levels of JSON in each other, and largest whole number: beyond both, what uses it would fail instead."""
_SAMPLE = 1 << 20
_MOST = 10**300
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class UnusableFileError(OSError):
    """A file that exists but must not be read, for the reason in the message."""


@contextmanager
def opened(path: Path | str) -> Iterator[BufferedReader]:
    """Open a regular file for reading bytes, without ever waiting. Raises OSError for absent files and for pipes."""
    try:
        _must_be_regular(os.stat(path))
    except ValueError as error:  # a null character in it
        raise UnusableFileError(f"no file can be called {str(path)!r}: {error}") from None
    with open(path, "rb", opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        _must_be_regular(status)
        if status.st_size == 0:
            _must_be_empty(file.fileno())
        yield file


def size(file: BufferedReader) -> int:
    """Give the bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def content(path: Path | str, per_byte: float = 1.0) -> bytes:
    """Give all bytes of a file. Raises OSError; also if ``per_byte`` of memory for each is too much."""
    with opened(path) as file:
        long = size(file)
        must_fit(per_byte * long, f"a file of {bytes_text(long)}")
        return file.read(long)


def text(path: Path | str, encoding: str = "utf-8") -> str:
    """Give a file's text. Raises OSError and UnicodeDecodeError."""
    return content(path, PER_CHARACTER).decode(encoding)


def json_of(path: Path | str, whole: float = JSON_WHOLE) -> Any:
    """Read a JSON file. Raises OSError, and ValueError as ``parsed_json`` does."""
    return parsed_json(text(path), whole)


def parsed_json(source: str | bytes, whole: float = JSON_WHOLE) -> Any:
    """Parse JSON text; NaN and Infinity are numbers.

    Raises ValueError for any other text, more than ``JSON_DEPTH`` levels, a name that stands twice in an object, and
    whole numbers whose absolute value exceeds ``whole``.
    """

    def number(digits: str) -> int:
        if abs(integer := int(digits)) > whole:
            raise ValueError(f"the number {digits[:20]}… is too large")
        return integer

    try:
        value = json.loads(source, object_pairs_hook=_unique, parse_int=number)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    within, level = [value], 0
    while containers := [each for each in within if isinstance(each, dict | list)]:
        level += 1
        if level > JSON_DEPTH:
            raise ValueError(_TOO_DEEP)
        within = [item for each in containers for item in _items(each)]
    return value


@cache
def machine_memory() -> float:
    """Give the bytes of memory of this machine or container; infinite if the system does not report them."""
    try:
        there = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        there = math.inf
    for limit in _LIMITS:
        try:
            there = min(there, float(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return there


def must_fit(needed: float, what: str) -> None:
    """Raise UnusableFileError if ``what`` would need more bytes of memory than a file may take."""
    there = machine_memory()
    if needed > SHARE * there:
        may = f"a file may take {bytes_text(SHARE * there)}, half of what is there"
        raise UnusableFileError(f"{what} would need {bytes_text(needed)} of memory, and {may}")


def must_be_no_bomb(packed: int, unpacked: int) -> None:
    """Raise UnusableFileError if ``packed`` bytes unpack to suspiciously many."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise UnusableFileError(
            f"its {bytes_text(packed)} unpack to {bytes_text(unpacked)} or more, over {BOMB_RATIO} times as much "
            "(if that is meant, keep it unpacked)"
        )


def read_array(file: BufferedIOBase, long: int, held: float = 0.0) -> NDArray[Any]:
    """Read an array in NPY format from a file (or member of an archive) of ``long`` bytes, without unpickling.

    Raises ValueError for other formats, and for headers that announce more than follows; UnusableFileError where the
    array does not fit into memory beside ``held`` bytes.
    """
    shape, fortran, dtype = _header(file)
    needed = math.prod(shape) * dtype.itemsize
    announced = f"its header announces {dtype} of shape {_shape(shape)}"
    if dtype.hasobject or dtype.names is not None or dtype.itemsize == 0:
        raise ValueError(f"{announced}, which is not plain numbers or text (objects are refused, they could run code)")
    if needed > long - file.tell() or any(not 0 <= length < 2**40 for length in shape):
        raise ValueError(f"{announced}, {bytes_text(needed)}, but {bytes_text(long - file.tell())} follow")
    must_fit(needed + held, "its array")
    buffer = np.empty(needed, np.uint8)
    view, got = memoryview(buffer.data), 0
    while got < needed:
        more = file.readinto(view[got:])
        if not more:
            raise ValueError(f"it ends after {bytes_text(got)} of {bytes_text(needed)}")
        got += more
    flat = buffer.view(dtype) if needed else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def array_of(path: Path | str) -> NDArray[Any]:
    """Read an NPY file. Raises OSError, and ValueError as ``read_array`` does."""
    with opened(path) as file:
        return read_array(file, size(file))


class Unpacked(RawIOBase):
    """The content of a gzipped file as a stream, which raises UnusableFileError when it grows too large.

    ``per_byte`` is the memory that each unpacked byte takes in the end.
    """

    def __init__(self, file: BufferedReader, per_byte: float) -> None:
        self._packed, self._per_byte, self._read = size(file), per_byte, 0
        self._gzip = gzip.GzipFile(fileobj=file, mode="rb")

    def readable(self) -> bool:
        """Give True: ``pyarrow.PythonFile`` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer."""
        got = self._gzip.readinto(buffer)
        self._read += got
        must_be_no_bomb(self._packed, self._read)
        what = f"a file of {bytes_text(self._packed)} that unpacks to {bytes_text(self._read)}"
        must_fit(self._per_byte * self._read, what)
        return got


def beginning(path: Path | str, packed: bool) -> bytes:
    """Give the first MiB of a file, unpacked, to detect its format."""
    with opened(path) as file:
        return gzip.GzipFile(fileobj=file, mode="rb").read(_SAMPLE) if packed else file.read(_SAMPLE)


def bytes_text(amount: float) -> str:
    """Give a number of bytes with three digits and a unit."""
    amount = float(min(amount, _MOST))
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount:.0f} bytes"


_TOO_DEEP = f"it is nested too deeply, in more than {JSON_DEPTH} levels"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} stands twice in an object")
    return members


def _items(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _must_be_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for matches, name in _KINDS if matches(status.st_mode)), "something else")
        raise UnusableFileError(f"it is {kind}, not a regular file")


def _must_be_empty(handle: int) -> None:
    """Refuse files such as /proc/kmsg: regular and of no bytes by their description, and yet not empty."""
    try:
        more = bool(os.read(handle, 4096))  # less than a block is refused by some
    except BlockingIOError:
        more = True
    if more:
        raise UnusableFileError("it is a file of the kernel, not a regular file: it has content, but no length")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _header(file: BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # numpy parses the header as a Python literal: damaged ones raise almost anything
        raise ValueError(f"it is no array in NPY format ({str(error)[:120].replace('; ', ', ')})") from None
    raise ValueError(f"it is in NPY format {version[0]}.{version[1]}, and only 1.0 and 2.0 hold plain arrays")


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(f"{n:,}" if abs(n) < 10**9 else f"{float(min(n, _MOST)):.3g}" for n in shape) + ")"


# --- delimiters -------------------------------------------------------------------------------------------------------


DELIMITERS = (b",", b";", b"\t", b"|")
"""In the order in which they are tried."""
_QUOTED = re.compile(rb'"[^"]*"')
_WITH_COMMA, _WITH_POINT = (rb'\s*"?[-+]?\d+' + sign + rb'\d+([eE][-+]?\d+)?"?\s*' for sign in (rb",", rb"\."))
_THOUSANDS = re.compile(rb'\s*"?[-+]?\d{1,3},\d{3}"?\s*')


def delimiter_of(start: bytes, skip_lines: int = 0) -> bytes:
    """Return the delimiter of a file that begins with ``start``; the header is below ``skip_lines``.

    It is the first one that divides the header and the line below it into equally many fields, two at least; else a
    comma. Delimiters in double quotes do not count.
    """
    header, row = ([*_QUOTED.sub(b"", start).splitlines()[skip_lines:], b"", b""])[:2]
    equal = [each for each in DELIMITERS if 0 < header.count(each) == row.count(each)]
    if len(equal) > 1 and equal[0] == b",":  # of numbers without a header: 1,5;2,5
        cells = [*header.split(equal[1]), *row.split(equal[1])]
        equal = equal[1:] if all(re.fullmatch(_WITH_COMMA, cell) for cell in cells if b"," in cell) else equal
    return equal[0] if equal else DELIMITERS[0]


def decimal_of(start: bytes, delimiter: bytes) -> bytes:
    """Return the decimal point of a file with this ``delimiter``: a comma, if it is certain; else a point.

    A comma is certain if some number has one, none has a point, and not all could be thousands (``1,500``).
    """
    if delimiter == b",":
        return b"."
    cells = [cell for line in start.splitlines() for cell in line.split(delimiter)]
    commas = [cell for cell in cells if re.fullmatch(_WITH_COMMA, cell)]
    points = any(re.fullmatch(_WITH_POINT, cell) for cell in cells)
    return b"," if commas and not points and not all(map(_THOUSANDS.fullmatch, commas)) else b"."
