"""From each party's columns to features to train on: categories encoded, gaps filled, numbers scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.categories import coded
from vflsim.learning.data.facts import DataFacts, FilledColumn, Vocabulary
from vflsim.learning.data.gaps import filled
from vflsim.learning.data.joint import chosen, joined
from vflsim.learning.data.scaling import Scaler
from vflsim.learning.data.sources.raw import Array, View
from vflsim.learning.data.spec import Data, Scale
from vflsim.learning.data.split import RowSplit
from vflsim.learning.data.strips import strips, together


def prepared(
    views: Sequence[View], splits: Sequence[RowSplit], data: Data, dtype: np.dtype[Any], names: Sequence[str]
) -> tuple[tuple[View, ...], DataFacts]:
    """Encode categories and fill gaps, party by party, each with its own rows of ``splits``."""
    made, filled_columns, categories = [], list[FilledColumn](), list[Vocabulary]()
    for view, split, name in zip(views, splits, names, strict=True):
        if not len(split.train):
            raise DataError(f"{view.name}: holds none of the training rows", name, "some of them", "align: inner")
        view, vocabularies = coded(view, split, data.encoding, dtype, name)
        view, gaps = (view, ()) if data.missing is None else filled(view, split, data.missing, name)
        made.append(view)
        filled_columns += gaps
        categories += vocabularies
    return tuple(made), DataFacts(None, tuple(filled_columns), tuple(categories))


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
    for rows, what in ((split.train, "training"), (split.validation, "validation"), (split.test, "test")):
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
    """Fit on the features of all ``views``."""
    first, values = views[0], [chosen(view.values, split.train) for view in views]
    try:
        together = values[0] if len(values) == 1 else np.concatenate([v.reshape(len(v), -1) for v in values], axis=1)
        scaler = Scaler.fit(together, scale, first.pixels)
    except ValueError as error:
        allowed = "values whose squares are numbers, too: roughly 1e-150 to 1e150"
        raise DataError(f"{first.name}: {error}", name, allowed, "rescale the column") from None
    return scaler if scaler is None or not first.unscaled else scaler.except_at(first.unscaled)
