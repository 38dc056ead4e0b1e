"""The features of all parties side by side, in one array a split; each party's are scaled by its own training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import Array, View
from vflsim.learning.data.spec import Scale
from vflsim.learning.data.split import Rows

_SQUARED = 8192  # rows squared at a time, so that no second matrix of the whole size comes to be


@dataclass(frozen=True)
class Scaler:
    """x → (x − centre) / spread. Both have shape (features,), or () for pixels."""

    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def fit(cls, train: Array, scale: Scale, pixels: bool = False) -> Scaler | None:
        """Fit on training rows (rows, features) or (rows, channels, height, width); None for ``none``.

        standard: mean and standard deviation (divisor n). minmax: minimum and range. Tables are scaled per feature.
        Pixels, cut as images or as columns, share one pair of numbers over all that the party holds: a pixel that is
        almost always dark has a deviation near zero, and would be blown up hundreds of times in the few rows where it
        is not. A feature that is constant over the training rows keeps spread 1: it becomes 0, never NaN.
        Raises ValueError for values so large, or so close, that their spread is no float64.
        """
        if scale == "none":
            return None
        axes = tuple(range(train.ndim)) if pixels else (0,)
        if train.dtype.itemsize == 1:  # a window on the rows of all: five passes are quicker over packed bytes
            train = train.copy(order="K")
        low = np.asarray(train.min(axis=axes), dtype=np.float64)
        high = np.asarray(train.max(axis=axes), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below
            if scale == "minmax":
                return cls._checked(low, np.where(high > low, high - low, 1.0), low, high)
            mean = np.asarray(train.mean(axis=axes, dtype=np.float64))
            squares = np.zeros_like(mean)
            for start in range(0, len(train), _SQUARED):
                squares += np.square(train[start : start + _SQUARED] - mean).sum(axis=axes)
        return cls._standard(mean, squares / (train.size / mean.size), low, high)

    @classmethod
    def of_single_columns(cls, train: Array, scale: Scale) -> Scaler | None:
        """Fit each column of float64 as ``fit`` does alone, to the last bit: numpy sums one column in another order.

        Raises ValueError for values so large, or so close, that their spread is no float64.
        """
        if scale == "none":
            return None
        columns = np.ascontiguousarray(train.T)
        low, high = columns.min(axis=1), columns.max(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below
            if scale == "minmax":
                return cls._checked(low, np.where(high > low, high - low, 1.0), low, high)
            mean = columns.mean(axis=1)
            squares = np.zeros_like(mean)
            for start in range(0, len(train), _SQUARED):
                squares += np.square(columns[:, start : start + _SQUARED] - mean[:, None]).sum(axis=1)
        return cls._standard(mean, squares / len(train), low, high)

    @classmethod
    def _standard(cls, mean: Array, squares: Array, low: Array, high: Array) -> Scaler:
        # The mean of equal numbers may miss them by a rounding error: the extremes decide what is constant.
        constant = high == low
        return cls._checked(np.where(constant, low, mean), np.where(constant, 1.0, np.sqrt(squares)), low, high)

    @classmethod
    def _checked(cls, centre: Array, spread: Array, low: Array, high: Array) -> Scaler:
        wrong = ~(np.isfinite(centre) & np.isfinite(spread) & (spread > 0))
        if wrong.any():
            column = np.flatnonzero(wrong.ravel())[0]
            raise ValueError(f"values from {low.ravel()[column]:g} to {high.ravel()[column]:g} cannot be scaled")
        return cls(centre, spread)

    def except_at(self, columns: Sequence[int]) -> Scaler:
        """The same, but some columns stay as they are."""
        centre, spread = self.centre.copy(), self.spread.copy()
        centre[[*columns]], spread[[*columns]] = 0.0, 1.0
        return Scaler(centre, spread)

    def apply(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """Return scaled values in ``dtype``, a new array. Small integers are computed in it, others in float64."""
        work = np.array(values, dtype=np.result_type(values.dtype, dtype))
        work -= self.centre.astype(work.dtype)
        work /= self.spread.astype(work.dtype)
        return work.astype(dtype, copy=False)


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
