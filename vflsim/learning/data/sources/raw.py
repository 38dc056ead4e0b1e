"""The output of every reader of files: feature matrices, raw labels, and facts about the rows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.learning.data.facts import Alignment

Array = NDArray[Any]


@dataclass(frozen=True)
class View:
    """Features of all rows that belong together: a table, a set of images, or one party's file.

    ``values`` has shape (rows, features) for tables and (rows, channels, height, width) for images.
    ``names`` has one name per feature, in flattened order; whole images leave it empty (pixels are named by position).
    ``pixels`` says that all features measure the same thing, whether they still have the shape of images or not.
    ``categories`` has the names of each feature's categories, none for numbers; it is empty if all are numbers. Values
    are their places, until ``categories.coded`` numbers them. ``unscaled`` are columns that no scale may touch.
    """

    name: str
    values: Array
    names: tuple[str, ...] = ()
    pixels: bool = False
    categories: tuple[tuple[str, ...], ...] = ()
    unscaled: tuple[int, ...] = ()

    @property
    def is_image(self) -> bool:
        """Whether the features have the shape of images."""
        return self.values.ndim == 4

    @property
    def width(self) -> int:
        """Number of features a row has."""
        return math.prod(self.values.shape[1:])

    def some(self, name: str, columns: Sequence[int]) -> View:
        """Return some columns of a table as a view; those of a range share the memory."""
        if isinstance(columns, range):  # a million parties may have one each
            some = slice(columns.start, columns.stop)
            return View(name, self.values[:, some], self.names[some], self.pixels, self.categories[some])
        names = tuple(self.names[column] for column in columns)
        categories = tuple(self.categories[column] for column in columns) if self.categories else ()
        return View(name, self.values[:, columns], names, self.pixels, categories)


@dataclass(frozen=True)
class RawData:
    """One data set as its files hold it: nothing split, scaled or encoded yet.

    ``where`` says which file (and which label) an error about the labels should name. ``groups`` names, for every row,
    the group it belongs to. ``official_test`` is the index of the first official test row (they stand at the end).
    ``given`` has the split of each row in words, where the files give it, and ``ids`` has the rows' ids. ``alignment``
    counts the rows of files that do not hold the same ids. ``present``, (rows, views), says which rows a view has; the
    others are zeros in it. None: all.
    """

    where: str
    views: tuple[View, ...]
    target: Array
    groups: Array | None = None
    official_test: int | None = None
    alignment: Alignment | None = None
    present: Array | None = None
    given: Array | None = None
    ids: Array | None = None

    @property
    def rows(self) -> int:
        """Number of rows of all splits together."""
        return int(self.target.shape[0])


def nearest(name: str, options: Iterable[str], limit: int = 12) -> str:
    """List the options nearest to a misspelt name, or the first few of them: text for an error's ``allowed``."""
    known = list(options)
    folded = {option.casefold(): option for option in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=3, cutoff=0.6)
    if close:
        return "near matches: " + ", ".join(repr(folded[match]) for match in close)
    shown = ", ".join(repr(option) for option in known[:limit])
    return f"one of {shown}" + (f", … ({len(known)} in all)" if len(known) > limit else "")


def numbers(
    values: Array,
    where: str,
    names: Sequence[str] = (),
    place: Callable[[int], str] = lambda row: f"row {row + 1}",
    gaps: bool = False,
) -> Array:
    """Return the features as finite real numbers, C-contiguous, in their own dtype (booleans as 0 and 1).

    With ``gaps``, NaN stands for missing values and may stay. ``place`` turns a row's index (from 0) into words. Raises
    DataError naming the row, the column and the value.
    """
    if values.dtype == bool:
        values = values.astype(np.uint8)
    if values.dtype.kind not in "iuf":
        what = f"features are of type {values.dtype}, which are not real numbers"
        raise DataError(what, where, "integers, floats or booleans", "convert them to numbers before")
    if values.size == 0:
        raise DataError(f"holds no features (shape {values.shape})", where, "at least one row and one column")
    wrong = np.isinf if gaps else _not_finite
    if values.dtype.kind == "f" and wrong(values).any():
        bad = np.argwhere(wrong(values))
        row, *position = (int(index) for index in bad[0])
        label = names[position[0]] if names and len(position) == 1 else ", ".join(map(str, position))
        what = f"{place(row)}, column {label!r} is {values[tuple(bad[0])]} ({len(bad)} such values in all)"
        remedy = "fill the gaps or remove the rows or columns before"
        if names and np.isnan(values[tuple(bad[0])]):
            remedy = "say what fills gaps: `missing: mean`, `zero` or `indicator`; or remove the rows or columns before"
        raise DataError(what, where, "finite numbers", remedy)
    return np.ascontiguousarray(values)


def _not_finite(values: Array) -> Array:
    return ~np.isfinite(values)


def feature_names(view: View) -> tuple[str, ...]:
    """Return a name per feature, in the order of the flattened values: pixels are ``pixel_<row>_<column>``."""
    if view.names:
        return view.names
    channels, height, width = view.values.shape[1:]
    prefix = [f"channel_{c}_" if channels > 1 else "" for c in range(channels)]
    return tuple(f"{prefix[c]}pixel_{y}_{x}" for c in range(channels) for y in range(height) for x in range(width))
