"""Checks of every matrix of features, from any file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import Array


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
