"""MATLAB files whose cell array ``X`` holds one matrix per view, and ``Y`` (or ``y``) the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from vflsim.errors import DataError
from vflsim.files import must_fit, opened, size
from vflsim.learning.data.sources.matrix import numbers
from vflsim.learning.data.sources.raw import Array, RawData, View

_INTACT = "delete the file and fetch it again, or put an intact copy in its place"

# The six feature sets of UCI's "multiple features", named as there and told apart by their width.
_HANDWRITTEN_VIEWS = {240: "pix", 76: "fou", 216: "fac", 47: "zer", 64: "kar", 6: "mor"}
# The six descriptors that the multi-view copies of Caltech-101 hold (Li, Nie, Huang & Huang, AAAI 2015).
_CALTECH_VIEWS = {48: "gabor", 40: "wavelet", 254: "centrist", 1984: "hog", 512: "gist", 928: "lbp"}


def read_views(path: Path, features: str = "X", labels: Sequence[str] = ("Y", "y")) -> tuple[list[Array], Array]:
    """Read the matrices (rows, features) of every view and the labels (rows,), by the first of its names that is there.

    Raises DataError when the file is damaged, lacks a variable, or holds views with different numbers of rows.
    """
    from scipy.io import loadmat  # slow to import

    try:
        with opened(path) as file:
            must_fit(size(file), "the file")
            content = loadmat(cast(Any, file), variable_names=[features, *labels])
    except Exception as error:  # scipy raises almost any type on damaged bytes
        raise DataError(f"cannot be read: {error}", str(path), "an intact MATLAB file (v4 to v7.2)", _INTACT) from error
    label = next((name for name in labels if name in content), labels[0])
    for name in (features, label):
        if name not in content:
            raise DataError(f"has no variable {name!r}", str(path), "a cell array X and labels Y", _INTACT)
    cells, target = content[features], np.ravel(content[label])
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
