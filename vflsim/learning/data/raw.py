"""The output of every reader of files: features, raw labels, facts about rows and about their preparation."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.streams import few

Align = Literal["inner", "outer", "exact"]
Encoding = Literal["codes", "one_hot"]
Missing = Literal["mean", "zero", "indicator"]

_LISTED = 1000
"""Categories of a column that are kept by name."""


@dataclass(frozen=True)
class FileRows:
    """One of several files: its ``rows``, and how many of them are ``used``."""

    file: str
    rows: int
    used: int


@dataclass(frozen=True)
class Alignment:
    """The alignment of files that do not hold the same ids, by ``rule``: ``rows`` are left of all splits together."""

    rule: Align
    rows: int
    files: tuple[FileRows, ...]

    def sentence(self) -> str:
        """Count the rows that are used and left out."""
        unused = [
            f"{each.rows - each.used:,} of {each.rows:,} in {each.file}" for each in self.files if each.used < each.rows
        ]
        out = f"; left out: {few(unused)}" if unused else ""
        if self.rule == "outer":
            absent = [f"{self.rows - each.used:,} in {each.file}" for each in self.files if each.used < self.rows]
            ids = f"{self.rows:,} ids have a label, and features at some party (align: outer)"
            return f"rows: {ids}" + (f"; absent: {few(absent)}" if absent else "") + out
        files = "both" if len(self.files) == 2 else f"all {len(self.files)}"
        return f"rows: {self.rows:,} ids stand in {files} files (align: inner){out}"


@dataclass(frozen=True)
class FilledColumn:
    """A column of ``party`` with missing values, filled by ``rule`` with ``value`` (in the file's unit).

    ``train``, ``validation`` and ``test`` count them.
    """

    party: str
    column: str
    rule: Missing
    value: float
    train: int
    validation: int
    test: int

    def phrase(self) -> str:
        """Name the column, its gaps and what fills them."""
        counts = {"training": self.train, "validation": self.validation, "test": self.test}
        gaps = ", ".join(f"{count:,} {split}" for split, count in counts.items() if count)
        value = f"{self.value:.6g}" if self.rule == "zero" else f"the training mean {self.value:.6g}"
        return f"{self.column!r} of {self.party} ({gaps or 'unused'} rows) with {value}"


@dataclass(frozen=True)
class Vocabulary:
    """The ``size`` categories that a column of ``party`` has in the training rows, and the names of the first 1,000.

    An empty cell is the category "". ``validation`` and ``test`` count the rows with none of these categories.
    """

    party: str
    column: str
    size: int
    categories: tuple[str, ...]
    validation: int
    test: int

    @classmethod
    def of(cls, party: str, column: str, names: Sequence[str], validation: int, test: int) -> Vocabulary:
        """Cut the list of names."""
        return cls(party, column, len(names), tuple(names[:_LISTED]), validation, test)

    def phrase(self) -> str:
        """Name the column, its first categories, and the rows with others."""
        names = few([name or "(empty)" for name in self.categories])
        others = {"validation": self.validation, "test": self.test}
        rows = ", ".join(f"{count:,} {split}" for split, count in others.items() if count)
        return f"{self.column!r} of {self.party}: {names}" + (f" (others in {rows} rows)" if rows else "")


@dataclass(frozen=True)
class DataFacts:
    """What was done to the rows and columns of files, as far as there was anything to do."""

    alignment: Alignment | None = None
    missing: tuple[FilledColumn, ...] = ()
    categories: tuple[Vocabulary, ...] = ()

    def stated(self) -> dict[str, Any]:
        """Return the steps that were taken, as ``run.json`` has them."""
        return {name: value for name, value in asdict(self).items() if value}

    def sentences(self) -> Iterator[str]:
        """Yield a line for each step of the preparation."""
        if self.alignment is not None:
            yield self.alignment.sentence()
        if self.missing:
            yield f"missing values ({self.missing[0].rule}): fills {few([each.phrase() for each in self.missing])}"
        if self.categories:
            yield f"categories of training rows: {few([each.phrase() for each in self.categories], '; ')}"


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
