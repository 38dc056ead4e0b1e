"""Which rows train, validate and test: drawn by a seed of their own, stratified, never cutting a group apart."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import ceil

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import Array
from vflsim.streams import BLOCK, SHARED, Uniforms

Rows = NDArray[np.int64]
_SPLITS = "train", "validation", "test"


@dataclass(frozen=True)
class RowSplit:
    """Indices of the rows of each split, ascending; ``validation`` may be empty."""

    train: Rows
    validation: Rows
    test: Rows

    def where(self, present: NDArray[np.bool_]) -> RowSplit:
        """Keep the rows that are ``present``, (rows,)."""
        return RowSplit(*(rows[present[rows]] for rows in (self.train, self.validation, self.test)))

    def digest(self, ids: Array | None, present: Array | None) -> str:
        """Return a SHA-256 of the rows of each split: of their ``ids`` (or indices), and of the parties that hold them.

        ``present``, (rows, parties), is None where all parties hold all rows.
        """
        found = sha256()
        for rows in (self.train, self.validation, self.test):
            found.update(f"{len(rows)} rows\n".encode())
            names = rows if ids is None else ids[rows]
            numbers = names.dtype.kind in "iu"  # of any width: files of one party may have been written by another
            found.update(names.astype("<i8").tobytes() if numbers else "\n".join(map(str, names)).encode())
            if present is not None:
                found.update(np.packbits(present[rows]).tobytes())
        return found.hexdigest()


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


def given_split(given: Array, where: str) -> RowSplit:
    """Return the split that a column gives: train, validation or test for each row, (rows,).

    Raises DataError for anything else, and unless there are rows to train on and rows to test.
    """
    words = np.char.strip(given) if given.dtype.kind == "U" else given.astype(str)
    if len(other := np.flatnonzero(~np.isin(words, _SPLITS))):
        what = f"row {other[0] + 1} is {words[other[0]].item()!r} ({len(other)} such rows in all)"
        raise DataError(what, where, ", ".join(_SPLITS), "correct the column, or `split_column`")
    split = RowSplit(*(np.flatnonzero(words == name) for name in _SPLITS))
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
    drawn = np.zeros(len(sizes), dtype=bool)
    for of, cumulated, quota in zip(members, filled, quotas, strict=True):
        drawn[of[: np.argmin(np.abs(cumulated - quota))]] = True
    return pool[drawn[unit]]


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
