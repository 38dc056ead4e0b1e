"""From each party's columns to features to train on: categories encoded, gaps filled, numbers scaled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from vflsim.errors import DataError
from vflsim.files import UnusableFileError, must_fit
from vflsim.learning.data.joint import RowSplit, Scaler, chosen, joined
from vflsim.learning.data.raw import Array, DataFacts, Encoding, FilledColumn, Missing, View, Vocabulary
from vflsim.learning.data.spec import Data, Scale


def coded(
    view: View, split: RowSplit, encoding: Encoding, dtype: np.dtype[Any], party: str
) -> tuple[View, tuple[Vocabulary, ...]]:
    """Return the view with its categorical columns encoded, and their categories.

    ``codes``: the n categories of the training rows have the codes 1 to n; all others share 0. ``one_hot``: each of the
    n has a 0/1 column in the place of theirs; all others have zeros there. No scale may touch either. Raises DataError,
    which names ``party``, for more codes than ``dtype`` can tell apart, or more columns than fit into memory.
    """
    if not any(view.categories):
        return view, ()
    values, known, vocabularies = view.values.copy(), [*view.categories], []
    for column in (column for column, names in enumerate(known) if names):
        places = np.unique(values[split.train, column])
        order = np.searchsorted(places, values[:, column]).clip(max=len(places) - 1)
        values[:, column] = np.where(places[order] == values[:, column], order + 1, 0)
        known[column] = tuple(known[column][place] for place in places.astype(np.int64))
        others = (int((values[rows, column] == 0).sum()) for rows in split[1:])
        vocabularies.append(Vocabulary.of(party, view.names[column], known[column], *others))
    view = replace(view, values=values, categories=tuple(known))
    return _one_hot(view, party) if encoding == "one_hot" else _checked(view, dtype, party), tuple(vocabularies)


def _checked(view: View, dtype: np.dtype[Any], party: str) -> View:
    for name, names in zip(view.names, view.categories, strict=True):
        if len(names) > 1 / np.finfo(dtype).eps:
            what = f"column {name!r} has {len(names):,} categories, more than {dtype} can number"
            raise DataError(what, party, "fewer", "use training.dtype: float64")
    return replace(view, unscaled=tuple(column for column, names in enumerate(view.categories) if names))


def _one_hot(view: View, party: str) -> View:
    width = sum(len(names) or 1 for names in view.categories)
    try:
        must_fit(view.values.itemsize * len(view.values) * width, f"{width:,} columns, one for each category,")
    except UnusableFileError as error:
        raise DataError(str(error), party, "fewer categories", "use `encoding: codes`, or `drop` the column") from error
    pieces: list[Array] = []
    names: list[str] = []
    unscaled: list[int] = []
    for column, (name, known) in enumerate(zip(view.names, view.categories, strict=True)):
        values = view.values[:, column : column + 1]
        unscaled += range(len(names), len(names) + len(known))
        names += [f"{name}={each}" for each in known] or [name]
        pieces.append((values == np.arange(1, len(known) + 1)).astype(values.dtype) if known else values)
    return View(view.name, np.concatenate(pieces, axis=1), tuple(names), view.pixels, unscaled=tuple(unscaled))


def filled(view: View, split: RowSplit, rule: Missing, party: str) -> tuple[View, tuple[FilledColumn, ...]]:
    """Return the view without gaps (NaN), and what was filled with what.

    ``indicator`` adds a 0/1 column behind the others for each column with gaps in its training rows. Raises DataError,
    which names ``party`` and column, where a mean is asked of a column without values in its training rows.
    """
    gaps = np.isnan(view.values) if view.values.dtype.kind == "f" and not view.is_image else np.empty((0, 0), np.bool_)
    columns = np.flatnonzero(gaps.any(axis=0)).tolist()
    if not columns:
        return view, ()
    values, filled_columns = view.values.copy(), []
    for column in columns:
        known = values[split.train, column][~gaps[split.train, column]]
        if rule != "zero" and not len(known):
            what = f"column {view.names[column]!r} has no value in the training rows"
            remedy = f"set `missing: zero`, or leave it out with `drop: [{view.names[column]}]`"
            raise DataError(f"{view.name}: {what}", party, "a value in at least one training row", remedy)
        value = 0.0 if rule == "zero" else float(known.mean())
        values[gaps[:, column], column] = value
        counts = (int(gaps[rows, column].sum()) for rows in split)
        filled_columns.append(FilledColumn(party, view.names[column], rule, value, *counts))
    marks = [column for column, each in zip(columns, filled_columns, strict=True) if rule == "indicator" and each.train]
    return replace(
        view,
        values=np.concatenate([values, gaps[:, marks]], axis=1, dtype=values.dtype),
        names=(*view.names, *(f"{view.names[column]} is missing" for column in marks)),
        categories=(*view.categories, *[()] * len(marks)) if view.categories else (),
        unscaled=(*view.unscaled, *range(view.width, view.width + len(marks))),
    ), tuple(filled_columns)


_WIDTH = 1024
"""Most columns of a strip, so that what is computed of it at a time stays small."""


def strips(views: Sequence[View], splits: Sequence[RowSplit]) -> Iterator[range]:
    """Yield the places of neighbours that hold equally many adjacent columns of one table, of the same rows.

    Columns of numbers in float64 alone: all other views come one by one.
    """
    first = 0
    while first < len(views):
        stop, values = first + 1, views[first].values
        if _is_plain(views[first]):
            width, address = values.shape[1], _address(values)
            last = min(len(views), first + max(1, _WIDTH // width))
            while (
                stop < last
                and splits[stop] is splits[first]
                and _follows(views[stop], values, address + (stop - first) * width * values.itemsize)
            ):
                stop += 1
        yield range(first, stop)
        first = stop


def together(views: Sequence[View], strip: range) -> View:
    """Return the view of all columns of a strip, without names; of a strip of one, its view. It copies nothing."""
    first = views[strip.start]
    if len(strip) == 1:
        return first
    rows, width = first.values.shape
    return View(first.name, as_strided(first.values, (rows, width * len(strip)), first.values.strides, writeable=False))


def _is_plain(view: View) -> bool:
    values = view.values
    return values.ndim == 2 and values.dtype == np.float64 and values.size > 0 and not (view.pixels or view.unscaled)


def _follows(view: View, first: Array, address: int) -> bool:
    """Return whether a plain view has the columns at an ``address`` of the table of ``first``, a plain one's."""
    values = view.values
    return (
        values.base is first.base
        and first.base is not None
        and values.shape == first.shape
        and values.strides == first.strides
        and (values.dtype is first.dtype or values.dtype == first.dtype)
        and not (view.pixels or view.unscaled)
        and _address(values) == address
    )


def _address(values: Array) -> int:
    address: int = values.__array_interface__["data"][0]
    return address


def prepared(
    views: Sequence[View], splits: Sequence[RowSplit], data: Data, dtype: np.dtype[Any], names: Sequence[str]
) -> tuple[tuple[View, ...], DataFacts]:
    """Encode categories and fill gaps, party by party, each with its own rows of ``splits``."""
    prepared_views, filled_columns, categories = [], list[FilledColumn](), list[Vocabulary]()
    for view, split, name in zip(views, splits, names, strict=True):
        if not len(split.train):
            raise DataError(f"{view.name}: holds none of the training rows", name, "some of them", "align: inner")
        view, vocabularies = coded(view, split, data.encoding, dtype, name)
        view, gaps = (view, ()) if data.missing is None else filled(view, split, data.missing, name)
        prepared_views.append(view)
        filled_columns += gaps
        categories += vocabularies
    return tuple(prepared_views), DataFacts(None, tuple(filled_columns), tuple(categories))


def joined_splits(
    views: Sequence[View],
    split: RowSplit,
    splits: Sequence[RowSplit],
    scale: Scale,
    dtype: np.dtype[Any],
    names: Sequence[str],
) -> Iterator[Array]:
    """Lay the features of ``split`` side by side, each party's scaled by statistics of its own rows of ``splits``."""
    places = list(strips(views, splits))
    wide = [together(views, strip) for strip in places]
    of_strips = [names[strip.start] for strip in places]
    pixels = [view for view in views if view.pixels] if scale == "pooled" else []
    shared = _scaler("data.scale", pixels, splits[0], "standard") if pixels else None
    each: Scale = "standard" if scale == "pooled" else scale

    def fit(place: int) -> Scaler | None:
        pooled = scale == "pooled" and views[place].pixels
        return shared if pooled else _scaler(names[place], [views[place]], splits[place], each)

    scalers = [
        fit(strip.start) if len(strip) == 1 else _of_strip(view, strip, splits[strip.start], each, fit)
        for view, strip in zip(wide, places, strict=True)
    ]
    for rows, what in zip(split, ("training", "validation", "test"), strict=True):
        try:
            yield joined(wide, scalers, rows, dtype, what, of_strips)
        except DataError:  # party by party, to name the one
            yield joined(views, [fit(place) for place in range(len(views))], rows, dtype, what, names)


def _of_strip(
    view: View, strip: range, split: RowSplit, scale: Scale, fit: Callable[[int], Scaler | None]
) -> Scaler | None:
    """Fit the scalers of a strip's parties at once. Raises what ``fit`` raises for the first that has none."""
    rows = chosen(view.values, split.train)
    try:
        alone = rows.shape[1] == len(strip)
        return Scaler.of_single_columns(rows, scale) if alone else Scaler.fit(rows, scale)
    except ValueError:
        for place in strip:
            fit(place)
        raise


def _scaler(name: str, views: Sequence[View], split: RowSplit, scale: Scale) -> Scaler | None:
    first, values = views[0], [chosen(view.values, split.train) for view in views]
    try:
        together = values[0] if len(values) == 1 else np.concatenate([v.reshape(len(v), -1) for v in values], axis=1)
        scaler = Scaler.fit(together, scale, first.pixels)
    except ValueError as error:
        allowed = "values whose squares are numbers, too: roughly 1e-150 to 1e150"
        raise DataError(f"{first.name}: {error}", name, allowed, "rescale the column") from None
    return scaler if scaler is None or not first.unscaled else scaler.except_at(first.unscaled)
