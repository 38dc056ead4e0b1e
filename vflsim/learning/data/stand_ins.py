"""A stand-in for a party's file: what others need to know of it, and no features.

The process of another party, or the server's, reads it in the file's place. It has the same ids, columns and rows, so
that rows align and models have their shapes.
"""

import gzip
import io
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from vflsim.errors import DataError
from vflsim.learning.data.labels import encode
from vflsim.learning.data.sources.npz import Archive
from vflsim.learning.data.sources.raw import Array, nearest
from vflsim.learning.data.sources.table import Table
from vflsim.learning.data.sources.user import Holder, ids_of, open_file
from vflsim.learning.data.spec import Data

_AMOUNTS = 0.0, 0.5, 1.0
"""Stand for the labels of a regression: three, since two distinct labels would be classes."""


def stand_in(data: Data, name: str, folder: Path) -> bytes:
    """Return a file that can stand in for the party's file ``name`` of a scenario, in the same format.

    Ids, groups and splits stay. Features are 0; with ``missing: indicator`` their gaps stay, since they decide the
    number of columns. Labels take the classes in turn (in a regression 0, 0.5 and 1). ``folder`` is the scenario's.

    Raises DataError for data without a file for each party, for a file that does not belong to them, and where others
    would need more of it: categories, pixels that are scaled together, labels that decide the split.

    Example::

        Path("for-others/shop.csv").write_bytes(stand_in(scenario.data, "shop.csv", Path(".")))
    """
    files = [*(data.parties or ()), *([data.labels] if data.labels else [])]
    if data.parties is None:
        what, allowed = "the scenario's data have no file of each party", "data.parties: [bank.csv, shop.csv]"
        raise DataError(what, "data", allowed, "give every party a file of its own")
    place = (folder / name).absolute()
    if place not in [(folder / file).absolute() for file in files]:
        allowed = nearest(name, [Path(file).name for file in files])
        raise DataError(f"{name} is no file of the scenario's data", "data.parties", allowed)
    holder = open_file(place, data)
    ids_of(holder, data.id or "")
    _must_suffice(data, name, holder)
    kept = {column for column in (data.id, data.group, data.split_column) if column in holder.names}
    label = holder.column(data.label or "", "label") if data.label in holder.names else None
    labels = {} if label is None else {data.label or "": _labels(data, label, str(place))}
    gaps = data.missing == "indicator"
    if isinstance(holder, Archive):
        return _archive(holder, kept, labels, gaps)
    assert isinstance(holder, Table)
    return _table(holder, kept, labels, gaps)


def _must_suffice(data: Data, name: str, holder: Holder) -> None:
    if columns := sorted({*data.categorical} & {*holder.names}):
        what = f"the categories of column {columns[0]!r} decide the shapes of models, and nothing can stand in for them"
        raise DataError(what, name, "columns of numbers", "encode it as numbers before")
    if data.scale == "pooled" and {*holder.names} - {*data.no_features}:
        what = "the pixels of all parties are scaled together"
        raise DataError(what, "data.scale: pooled", "standard, minmax, none", "choose another scale")


def _labels(data: Data, labels: Array, where: str) -> Array:
    encoded = encode(labels, data.task, where)
    if encoded.task == "regression":
        return np.array([*islice(cycle(_AMOUNTS), len(labels))])
    if data.split_column is None:
        what = f"the labels (column {data.label!r}) decide which rows train, so nothing can stand in for them"
        remedy = "say train, validation or test for each row in a column, and name it by `split_column`"
        raise DataError(what, where, "a split that does not follow from labels", remedy)
    return np.resize(np.unique(labels), len(labels))


def _table(table: Table, kept: set[str], labels: Mapping[str, Array], gaps: bool) -> bytes:
    columns: dict[str, Any] = {}
    for name in table.names:
        column = table.columns.column(name)
        if name in kept:
            columns[name] = column
        elif name in labels:
            columns[name] = pa.array(labels[name])
        else:
            absent = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)).to_numpy()
            columns[name] = pa.array(np.zeros(len(column)), mask=absent if gaps else None)
    content, sink = pa.table(columns), io.BytesIO()
    if table.path.suffix == ".parquet":
        pa.parquet.write_table(content, sink)
    else:
        pa.csv.write_csv(content, sink)
    payload = sink.getvalue()
    return gzip.compress(payload, mtime=0) if table.path.suffix == ".gz" else payload


def _archive(archive: Archive, kept: set[str], labels: Mapping[str, Array], gaps: bool) -> bytes:
    arrays = {}
    for name, values in archive.arrays.items():
        zeros = np.zeros_like(values)
        if gaps and values.dtype.kind == "f":
            zeros[np.isnan(values)] = np.nan
        arrays[name] = values if name in kept else labels.get(name, zeros)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()
