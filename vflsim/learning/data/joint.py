"""The features of all parties side by side, in one array a split: written once, never copied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.scaling import Scaler
from vflsim.learning.data.sources.raw import Array, View
from vflsim.learning.data.split import Rows

_ALIGNMENT = 64
"""Bytes. PyTorch aligns its own tensors so; where memory starts can change the last bits of a sum over it."""
_BLOCK = 4096  # rows scaled at a time, so that no second matrix of the whole size comes to be


def edges(views: Sequence[View]) -> list[slice]:
    """Return the columns of each party's features in the joint array, in the order of ``views``."""
    ends = np.cumsum([0, *(view.width for view in views)]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def joined(
    views: Sequence[View],
    scalers: Sequence[Scaler | None],
    rows: Rows,
    dtype: np.dtype[Any],
    split: str,
    names: Sequence[str],
) -> Array:
    """The chosen rows of all views, scaled, side by side: (rows, columns) of ``dtype``, C-contiguous and aligned.

    ``split`` names the rows and ``names`` the parties, for errors. Raises DataError when a value overflows ``dtype``.
    """
    columns = edges(views)
    joint = _empty((len(rows), columns[-1].stop), dtype)
    for start in range(0, len(rows), _BLOCK):
        block = joint[start : start + _BLOCK]
        for number, (view, scaler) in enumerate(zip(views, scalers, strict=True)):
            values = chosen(view.values, rows[start : start + _BLOCK])
            with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below
                values = values.astype(dtype) if scaler is None else scaler.apply(values, dtype)
            if not np.isfinite(values).all():
                what = f"{view.name}: features of the {split} rows overflow {dtype}"
                allowed = f"values that {dtype} can hold"
                raise DataError(what, names[number], allowed, "rescale the column, or use float64")
            block[:, columns[number]] = values.reshape(len(block), -1)
    return joint


def window(joint: Array, view: View, columns: slice) -> Array:
    """Return a party's features as a window on the joint array: (rows, *feature_shape)."""
    return joint[:, columns].reshape(len(joint), *view.values.shape[1:])


def chosen(values: Array, rows: Rows) -> Array:
    """Select rows, without a copy where they are consecutive (as official splits are)."""
    consecutive = len(rows) > 0 and int(rows[-1]) - int(rows[0]) == len(rows) - 1
    return values[int(rows[0]) : int(rows[-1]) + 1] if consecutive else values[rows]


def _empty(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    size = shape[0] * shape[1]
    memory = np.empty(size + _ALIGNMENT // dtype.itemsize, dtype)
    start = -memory.ctypes.data % _ALIGNMENT // dtype.itemsize
    return memory[start : start + size].reshape(shape)
