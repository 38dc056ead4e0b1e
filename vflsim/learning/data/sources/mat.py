"""MATLAB files whose cell array ``X`` holds one matrix per view, and ``Y`` the labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.sources.matrix import numbers
from vflsim.learning.data.sources.raw import Array, RawData, View

_INTACT = "delete the file and fetch it again, or put an intact copy in its place"

# The six feature sets of UCI's "multiple features", named as there and told apart by their width.
_HANDWRITTEN_VIEWS = {240: "pix", 76: "fou", 216: "fac", 47: "zer", 64: "kar", 6: "mor"}


def read_views(path: Path, features: str = "X", labels: str = "Y") -> tuple[list[Array], Array]:
    """Read the matrices (rows, features) of every view and the labels (rows,).

    Raises DataError when the file is damaged, lacks a variable, or holds views with different numbers of rows.
    """
    from scipy.io import loadmat  # slow to import

    try:
        content = loadmat(path, variable_names=[features, labels])
    except Exception as error:  # scipy raises almost any type on damaged bytes
        raise DataError(f"cannot be read: {error}", str(path), "an intact MATLAB file (v4 to v7.2)", _INTACT) from error
    for name in (features, labels):
        if name not in content:
            raise DataError(f"has no variable {name!r}", str(path), "a cell array X and labels Y", _INTACT)
    cells, target = content[features], np.ravel(content[labels])
    if cells.dtype != object or not cells.size:
        raise DataError(f"variable {features!r} is not a cell array", str(path), "one matrix per view", _INTACT)
    views = [np.asarray(cell) for cell in cells.ravel()]
    for number, view in enumerate(views, start=1):
        if view.ndim != 2 or len(view) != len(target):
            what = f"view {number} has shape {view.shape}, but there are {len(target)} labels"
            raise DataError(what, str(path), "(rows, features) with one row per label", _INTACT)
    return views, target


def read_handwritten(files: Sequence[Path]) -> RawData:
    """Read the six views of UCI's handwritten numerals, in the order of the file."""
    (path,) = files
    matrices, target = read_views(path)
    views = []
    for number, matrix in enumerate(matrices, start=1):
        name = _HANDWRITTEN_VIEWS.get(matrix.shape[1], f"view{number}")
        names = tuple(f"{name}{column}" for column in range(matrix.shape[1]))
        views.append(View(name, numbers(matrix, f"{path}: view {number}", names), names))
    return RawData(str(path), tuple(views), target)
