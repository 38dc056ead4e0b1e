"""Categorical columns: codes for their categories, from the training rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import View
from vflsim.learning.data.split import Rows


def coded(view: View, train: Rows, dtype: np.dtype[Any], where: str) -> View:
    """Return the view with codes in its categorical columns, and their cardinalities.

    The n categories of the training rows have the codes 1 to n; all others share 0, so the cardinality is n + 1.
    Raises DataError, which names ``where``, for more codes than ``dtype`` can tell apart.
    """
    if not any(view.cardinalities):
        return view
    values, cardinalities = view.values.copy(), [0] * view.width
    for column in np.flatnonzero(view.cardinalities).tolist():
        known = np.unique(values[train, column])
        places = np.searchsorted(known, values[:, column]).clip(max=len(known) - 1)
        values[:, column] = np.where(known[places] == values[:, column], places + 1, 0)
        cardinalities[column] = len(known) + 1
        if len(known) > 1 / np.finfo(dtype).eps:
            what = f"column {view.names[column]!r} has {len(known):,} categories, more than {dtype} can number"
            raise DataError(what, where, "fewer", "use training.dtype: float64")
    return replace(view, values=values, cardinalities=tuple(cardinalities))
