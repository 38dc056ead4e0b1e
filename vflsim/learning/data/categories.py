"""Categorical columns: codes for their categories, or 0/1 columns, from the training rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vflsim.errors import DataError
from vflsim.files import UnusableFileError, must_fit
from vflsim.learning.data.facts import Encoding, Vocabulary
from vflsim.learning.data.sources.raw import Array, View
from vflsim.learning.data.split import RowSplit


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
    values, known, found = view.values.copy(), [*view.categories], []
    for column in (column for column, names in enumerate(known) if names):
        places = np.unique(values[split.train, column])
        order = np.searchsorted(places, values[:, column]).clip(max=len(places) - 1)
        values[:, column] = np.where(places[order] == values[:, column], order + 1, 0)
        known[column] = tuple(known[column][place] for place in places.astype(np.int64))
        others = (int((values[rows, column] == 0).sum()) for rows in (split.validation, split.test))
        found.append(Vocabulary.of(party, view.names[column], known[column], *others))
    view = replace(view, values=values, categories=tuple(known))
    return _one_hot(view, party) if encoding == "one_hot" else _checked(view, dtype, party), tuple(found)


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
