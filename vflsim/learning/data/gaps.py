"""Missing values in the features of tables: what takes their place, from the training rows alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.facts import FilledColumn, Missing
from vflsim.learning.data.sources.raw import View
from vflsim.learning.data.split import RowSplit


def filled(view: View, split: RowSplit, rule: Missing, party: str) -> tuple[View, tuple[FilledColumn, ...]]:
    """Return the view without gaps (NaN), and what was filled with what.

    ``indicator`` adds a 0/1 column behind the others for each column with gaps in its training rows. Raises DataError,
    which names ``party`` and column, where a mean is asked of a column without values in its training rows.
    """
    gaps = np.isnan(view.values) if view.values.dtype.kind == "f" and not view.is_image else np.empty((0, 0), np.bool_)
    columns = np.flatnonzero(gaps.any(axis=0)).tolist()
    if not columns:
        return view, ()
    values, found = view.values.copy(), []
    for column in columns:
        known = values[split.train, column][~gaps[split.train, column]]
        if rule != "zero" and not len(known):
            what = f"column {view.names[column]!r} has no value in the training rows"
            remedy = f"set `missing: zero`, or leave it out with `drop: [{view.names[column]}]`"
            raise DataError(f"{view.name}: {what}", party, "a value in at least one training row", remedy)
        value = 0.0 if rule == "zero" else float(known.mean())
        values[gaps[:, column], column] = value
        counts = (int(gaps[rows, column].sum()) for rows in (split.train, split.validation, split.test))
        found.append(FilledColumn(party, view.names[column], rule, value, *counts))
    shown = [column for column, each in zip(columns, found, strict=True) if rule == "indicator" and each.train]
    return replace(
        view,
        values=np.concatenate([values, gaps[:, shown]], axis=1, dtype=values.dtype),
        names=(*view.names, *(f"{view.names[column]} is missing" for column in shown)),
        categories=(*view.categories, *[()] * len(shown)) if view.categories else (),
        unscaled=(*view.unscaled, *range(view.width, view.width + len(shown))),
    ), tuple(found)
