"""Neighbouring parties' columns of one table as one view: a million parties take no million calls of numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from vflsim.learning.data.sources.raw import Array, View
from vflsim.learning.data.split import RowSplit

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
