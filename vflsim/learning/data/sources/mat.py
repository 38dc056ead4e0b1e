"""MATLAB files whose cell array ``X`` holds one matrix per view, and ``Y`` (or ``y``) the labels."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import BufferedReader, BytesIO
from pathlib import Path

import numpy as np

from vflsim.errors import DataError
from vflsim.files import SHARE, machine_memory, must_fit, opened, parsed_json, read_array, size
from vflsim.learning.data.sources.raw import Array, RawData, View, numbers

_PROGRAM = Path(__file__).with_name("mat_program.py")
_SECONDS, _BYTES_PER_SECOND = 60.0, 1e6
"""How long reading may take, in seconds of the processor: far longer than it does."""
_WAITING = 60
"""Seconds of the clock for one of them: a process of a busy machine gets a small share of it."""
_ALLOWED = "an intact MATLAB file, v4 to v7.2 (MATLAB writes one with `save(name, '-v7')`)"
_INTACT = "delete the file and fetch it again, or put an intact copy in its place"

# The six feature sets of UCI's "multiple features", named as there and told apart by their width.
_HANDWRITTEN_VIEWS = {240: "pix", 76: "fou", 216: "fac", 47: "zer", 64: "kar", 6: "mor"}
# The six descriptors that the multi-view copies of Caltech-101 hold (Li, Nie, Huang & Huang, AAAI 2015).
_CALTECH_VIEWS = {48: "gabor", 40: "wavelet", 254: "centrist", 1984: "hog", 512: "gist", 928: "lbp"}


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


def read_handwritten(files: Sequence[Path]) -> RawData:
    """Read the six views of UCI's handwritten numerals, in the order of the file."""
    return _named(files, _HANDWRITTEN_VIEWS)


def read_caltech7(files: Sequence[Path]) -> RawData:
    """Read the six views of the seven commonest classes of Caltech-101, in the order of the file."""
    return _named(files, _CALTECH_VIEWS)


def _named(files: Sequence[Path], views_by_width: Mapping[int, str]) -> RawData:
    (path,) = files
    matrices, target = read_views(path)
    views = []
    for number, matrix in enumerate(matrices, start=1):
        name = views_by_width.get(matrix.shape[1], f"view{number}")
        names = tuple(f"{name}{column}" for column in range(matrix.shape[1]))
        views.append(View(name, numbers(matrix, f"{path}: view {number}", names), names))
    return RawData(str(path), tuple(views), target)
