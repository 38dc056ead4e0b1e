"""Columns of Arrow from numbers and words, without pandas, which ``pyarrow.array`` loads."""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

_PLAIN = {int}, {float}, {bool}


def column(values: Any) -> pa.Array:
    """Return what ``pyarrow.array`` returns of a list or an array; numbers and words need no pandas."""
    if isinstance(values, np.ndarray):
        return numbers(values) if values.ndim == 1 and values.dtype.kind in "iufb" else pa.array(values)
    kinds = {*map(type, values)} if isinstance(values, list | tuple) else set()
    if kinds == {str}:
        return words(values)
    if kinds == {list} and (members := [*chain.from_iterable(values)]) and {*map(type, members)} in _PLAIN:
        return lists([*accumulate(map(len, values), initial=0)], np.asarray(members))
    return numbers(np.asarray(values)) if kinds in _PLAIN else pa.array(values)


def numbers(values: ArrayLike, mask: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers (n,) as an array of the same type, whose memory it shares; null where ``mask`` is True."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "iufb":
        return pa.array(array, mask=mask)
    kind = pa.from_numpy_dtype(array.dtype)
    held = np.packbits(array, bitorder="little") if array.dtype.kind == "b" else array
    there = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [there, pa.py_buffer(held)])


def words(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array of strings."""
    encoded = [text.encode() for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def lists(ends: ArrayLike, members: NDArray[Any]) -> pa.Array:
    """Return lists of ``members``, of which the k-th begins at ``ends[k]`` and ends before ``ends[k + 1]``."""
    return pa.ListArray.from_arrays(numbers(np.asarray(ends, np.int32)), numbers(members))


def array_of(column: pa.Array | pa.ChunkedArray, missing: float | None = None) -> NDArray[Any]:
    """Return a column of numbers as an array, with ``missing`` in the place of nulls.

    As ``to_numpy`` does, which loads pandas; a column with nulls needs ``missing``, or goes through it.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = column.type.to_pandas_dtype()
    if kind is np.bool_ or not np.issubdtype(kind, np.number) or (column.null_count and missing is None):
        whole: NDArray[Any] = column.to_numpy()
        return whole
    parts = [np.frombuffer(each.buffers()[1] or b"", kind, each.offset + len(each))[each.offset :] for each in chunks]
    pairs = zip(chunks, parts, strict=True)
    parts = [_filled(each, part, missing) if each.null_count else part for each, part in pairs]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, kind), *parts])


def _filled(column: pa.Array, values: NDArray[Any], missing: float | None) -> NDArray[Any]:
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    there = bits[column.offset : column.offset + len(column)].astype(np.bool_)
    return np.where(there, values, np.asarray(missing, values.dtype))
