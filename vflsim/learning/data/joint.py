"""The rows of each split, and the features of all parties side by side, scaled by each party's own training rows.

Rows that train, validate and test are drawn by a seed of their own, stratified, never cutting a group apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.learning.data.raw import Array, View
from vflsim.learning.data.spec import Scale
from vflsim.streams import BLOCK, SHARED, Uniforms

Rows = NDArray[np.int64]


class Splits(NamedTuple):
    """One array a split; the first axis of each counts its rows."""

    train: Array
    validation: Array
    test: Array

    @classmethod
    def of(cls, values: Array, rows: RowSplit) -> Splits:
        """Return the ``values`` of the rows of each split."""
        return cls(*(values[each] for each in rows))


class RowSplit(Splits):
    """Indices of the rows of each split, ascending; ``validation`` may be empty."""

    def where(self, present: NDArray[np.bool_]) -> RowSplit:
        """Keep the rows that are ``present``, (rows,)."""
        return RowSplit(*(rows[present[rows]] for rows in self))

    def digest(self, ids: Array | None, present: Array | None) -> str:
        """Return a SHA-256 of the rows of each split: of their ``ids`` (or indices), and of the parties that hold them.

        ``present``, (rows, parties), is None where all parties hold all rows.
        """
        hasher = sha256()
        for rows in self:
            hasher.update(f"{len(rows)} rows\n".encode())
            names = rows if ids is None else ids[rows]
            numbers = names.dtype.kind in "iu"  # of any width: files of one party may have been written by another
            hasher.update(names.astype("<i8").tobytes() if numbers else "\n".join(map(str, names)).encode())
            if present is not None:
                hasher.update(np.packbits(present[rows]).tobytes())
        return hasher.hexdigest()


def split_rows(
    strata: NDArray[np.int64],
    groups: Array | None,
    test_fraction: float,
    validation_fraction: float,
    official_test: int | None,
    seed: int,
    train_rows: int | None = None,
) -> RowSplit:
    """Split the rows.

    ``strata`` (rows,) numbers the classes from 0 (all 0 where there are none): every split gets its share of each, by
    the largest remainder. ``official_test`` is the first of the official test rows: they are the test split,
    and the others are split into training and validation. Groups stay whole, so shares of them are approximate.
    ``train_rows`` keeps only so many training rows, drawn alike. Every stratum keeps at least one row (or group) for
    training. Raises DataError when a split that is wanted would be empty or there are fewer training rows than wanted.
    """
    rows = len(strata)
    pool = np.arange(rows if official_test is None else official_test, dtype=np.int64)
    keys = _keys(rows, seed, "split")
    test = np.arange(len(pool), rows, dtype=np.int64)
    if official_test is None:
        test = _draw(pool, strata, groups, keys, round(test_fraction * len(pool)))
    rest = np.setdiff1d(pool, test, assume_unique=True)
    validation = _draw(rest, strata, groups, keys, round(validation_fraction * len(pool)))
    train = np.setdiff1d(rest, validation, assume_unique=True)
    for name, chosen, wanted in (("test", test, True), ("validation", validation, validation_fraction > 0)):
        if wanted and not len(chosen):
            what = f"the {name} split of {rows} rows would be empty"
            raise DataError(what, f"data.{name}_fraction", "at least one row", "raise the fraction or use more data")
    if train_rows is not None and train_rows != len(train):
        if train_rows > len(train):
            what = f"{train_rows} training rows are wanted, but there are {len(train)}"
            raise DataError(what, "data.train_rows", f"at most {len(train)}", "lower it or leave it out")
        train = _draw(train, strata, None, _keys(rows, seed, "train_rows"), train_rows, spare=0)
    return RowSplit(train, validation, test)


def given_split(column: Array, where: str) -> RowSplit:
    """Return the split that a column gives: train, validation or test for each row, (rows,).

    Raises DataError for anything else, and unless there are rows to train on and rows to test.
    """
    words = np.char.strip(column) if column.dtype.kind == "U" else column.astype(str)
    if len(other := np.flatnonzero(~np.isin(words, Splits._fields))):
        what = f"row {other[0] + 1} is {words[other[0]].item()!r} ({len(other)} such rows in all)"
        raise DataError(what, where, ", ".join(Splits._fields), "correct the column, or `split_column`")
    split = RowSplit(*(np.flatnonzero(words == name) for name in Splits._fields))
    for name, rows in (("train", split.train), ("test", split.test)):
        if not len(rows):
            raise DataError(f"no row is {name}", where, "rows of train and of test", "correct the column")
    return split


def _keys(rows: int, seed: int, purpose: str) -> NDArray[np.float64]:
    """One uniform per row, a function of (seed, purpose, row) alone: rows are drawn in ascending order of it."""
    stream = Uniforms(seed, SHARED, purpose)
    return np.concatenate([stream.block(number) for number in range(ceil(rows / BLOCK))])[:rows]


def _draw(
    pool: Rows, strata: NDArray[np.int64], groups: Array | None, keys: NDArray[np.float64], count: int, spare: int = 1
) -> Rows:
    """Draw about ``count`` rows of the pool (exactly, without groups), leaving ``spare`` units of each stratum.

    A unit is a group, or a row where there are none. It counts for its commonest stratum and is drawn in the order of
    the key of its first row.
    """
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    if groups is None:
        unit, first, sizes, stratum = np.arange(len(pool)), pool, np.ones(len(pool), dtype=np.int64), strata[pool]
    else:
        _, start, unit, sizes = np.unique(groups[pool], return_index=True, return_inverse=True, return_counts=True)
        first, classes = pool[start], int(strata.max()) + 1
        counts = np.bincount(unit * classes + strata[pool], minlength=len(sizes) * classes)
        stratum = counts.reshape(-1, classes).argmax(axis=1)
    by_key = np.lexsort((first, keys[first]))
    members = [by_key[stratum[by_key] == value] for value in np.unique(stratum)]
    filled = [np.concatenate([[0], np.cumsum(sizes[of])])[: len(of) + 1 - spare] for of in members]
    quotas = _shares([int(sizes[of].sum()) for of in members], [int(cumulated[-1]) for cumulated in filled], count)
    mask = np.zeros(len(sizes), dtype=bool)
    for of, cumulated, quota in zip(members, filled, quotas, strict=True):
        mask[of[: np.argmin(np.abs(cumulated - quota))]] = True
    return pool[mask[unit]]


def _shares(sizes: list[int], most: list[int], count: int) -> list[int]:
    """Share ``count`` over strata in proportion to their sizes by the largest remainder, at most ``most`` each."""
    exact = [size * count / sum(sizes) for size in sizes]
    shares = [min(int(share), limit) for share, limit in zip(exact, most, strict=True)]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (int(exact[i]) - exact[i], i))
    while sum(shares) < count:
        open_strata = [i for i in by_remainder if shares[i] < most[i]]
        if not open_strata:
            break
        for i in open_strata[: count - sum(shares)]:
            shares[i] += 1
    return shares


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
