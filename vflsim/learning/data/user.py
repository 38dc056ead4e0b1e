"""Files of the user's own: one with everything, or one per party aligned by id; stand-ins for those of others."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from vflsim.errors import DataError
from vflsim.learning.data.arrays import Archive, read_archive
from vflsim.learning.data.labels import encode, numbers_rows
from vflsim.learning.data.raw import Align, Alignment, Array, FileRows, RawData, View, nearest
from vflsim.learning.data.spec import Data
from vflsim.learning.data.table import Table, read_table

if TYPE_CHECKING:
    import pandas as pd

Ids: TypeAlias = "pd.Index[Any]"
_ALIKE = "write the ids alike: they are numbers in one file and text in the other"


def aligned(
    rule: Align, files: Sequence[Path], ids: Sequence[Ids], parties: int, label: int
) -> tuple[Ids, Alignment | None]:
    """Return the ids of the rows to use, in the order of the first file, and what that leaves out, if anything.

    ``ids`` are those of ``files``, unique in each; the first ``parties`` files hold features, and the one at ``label``
    the labels. ``outer`` uses the labelled rows of any party, those of the first file first. Raises DataError if
    ``rule`` is ``exact`` and ids differ, and if no row is left, or none of a file; all with the counts.
    """
    used = ids[0]
    for file, other in zip(files[1:], ids[1:], strict=True):
        if rule == "exact":
            _same(used, other, files[0], file)
        used = used[used.isin(other)]
    if rule == "outer":
        used = ids[0]
        for other in ids[1:parties]:
            used = used.append(other[~other.isin(used)])
        used = used[used.isin(ids[label])]
    numbers = [int(each.isin(used).sum()) for each in ids]
    if not all(numbers):
        counts = ", ".join(f"{file.name} has {len(each):,}" for file, each in zip(files, ids, strict=True))
        alike = len({each.dtype.kind in "iu" for each in ids}) == 1
        remedy = "name the column that holds the same ids in all files" if alike else _ALIKE
        what = "no id stands in every file"
        if rule == "outer":
            what = f"no id of {files[numbers.index(0)].name} has a label in {files[label].name}"
        raise DataError(f"{what}: {counts}", ", ".join(map(str, files)), "shared ids", remedy)
    if all(len(each) == count == len(used) for each, count in zip(ids, numbers, strict=True)):
        return used, None
    rows = tuple(FileRows(file.name, len(each), count) for file, each, count in zip(files, ids, numbers, strict=True))
    return used, Alignment(rule, len(used), rows)


def _same(first: Ids, other: Ids, first_file: Path, other_file: Path) -> None:
    parts = []
    for ids, there, here in (
        (first.difference(other), first_file, other_file), (other.difference(first), other_file, first_file)
    ):  # fmt: skip
        if len(ids):
            example = ids.tolist()[0]
            parts.append(f"{len(ids):,} ids of {there.name} are missing in {here.name} (such as {example!r})")
    if parts:
        remedy = "keep the ids that all files share, or set `align: inner`"
        remedy = remedy if (first.dtype.kind in "iu") == (other.dtype.kind in "iu") else _ALIKE
        allowed = "with `align: exact`, the same set of ids in every file, in any order"
        raise DataError("; ".join(parts), str(other_file), allowed, remedy)


SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")


Holder: TypeAlias = Table | Archive


def open_file(path: Path, data: Data, drop: Sequence[str] = (), held: int = 0) -> Holder:
    """Read a CSV, Parquet or NPZ file of ``data``, recognised by its ending; ``held`` bytes are in memory already.

    DataError for any other ending.
    """
    if not path.name.endswith(SUFFIXES):
        ending = path.suffix or "no ending"
        raise DataError(f"cannot tell the format from {ending!r}", str(path), ", ".join(SUFFIXES), "convert the file")
    if path.suffix == ".npz":
        return read_archive(path, drop, held)
    return read_table(path, drop=drop, held=held, text=(*data.no_features, *data.categorical))


def read_file(data: Data, path: Path) -> RawData:
    """Read one file that holds features and label; ids, where given, must be unique and are no feature."""
    label = data.label or ""  # Data demands it for files
    holder = open_file(path, data, data.drop)
    target = holder.column(label, "label")
    groups = holder.column(data.group, "group") if data.group else None
    splits = holder.column(data.split_column, "split") if data.split_column else None
    ids = ids_of(holder, data.id).to_numpy() if data.id else None
    views = _views(holder, data)
    return RawData(f"{path}, column {label!r}", views, target, groups, given=splits, ids=ids)


def read_parties(data: Data, folder: Path) -> RawData:
    """Read one file per party and align all rows by id (``data.align``), in the order of the first file.

    The label (and the group, and the split) stands in exactly one of the files or in the separate file ``data.labels``.
    Raises
    DataError when ids repeat or cannot be aligned (how many, with an example), or a column is absent or stands in two
    files.
    """
    label, id_column = data.label or "", data.id or ""
    paths = [folder / party for party in data.parties or ()]
    labels = folder / data.labels if data.labels is not None else None
    files = [*paths, *([labels] if labels else [])]
    holders = _open_all(files, data)
    ids = [ids_of(holder, id_column) for holder in holders]
    where = _only(holders, label, "label")
    used, alignment = aligned(data.align, files, ids, len(paths), where)
    order = [index.get_indexer(used) for index in ids]

    def one(name: str | None, role: str) -> Array | None:
        """Return a column that one of the files holds for all rows."""
        if name is None:
            return None
        place = _only(holders, name, role)
        if lacking := int((order[place] < 0).sum()):
            what = f"{lacking:,} rows have no {role}: their ids are not in {files[place].name}"
            raise DataError(what, str(files[place]), f"a {role} for every row", "add them, or set `align: inner`")
        return holders[place].column(name, role)[order[place]]

    target = holders[where].column(label, "label")[order[where]]
    groups, splits = one(data.group, "group"), one(data.split_column, "split")
    if labels:
        extra = [name for name in holders[-1].names if name not in data.no_features]
        if extra:
            what = f"column {extra[0]!r} of the labels file belongs to no party"
            raise DataError(
                what, str(labels), "id, label, group and split_column", f"leave it out with `drop: [{extra[0]}]`"
            )
    pairs = zip(holders[: len(paths)], order, strict=False)  # the labels file, at the end, is no view
    views = tuple(_one_view(holder, data, rows) for holder, rows in pairs)
    names = {name for view in views for name in view.names}
    if missing := [name for name in data.categorical if name not in names]:
        what = f"no file has a categorical column {missing[0]!r}"
        raise DataError(what, ", ".join(map(str, paths)), nearest(missing[0], sorted(names)))
    present = np.stack([rows >= 0 for rows in order[: len(paths)]], axis=1)
    return RawData(
        f"{files[where]}, column {label!r}",
        views,
        target,
        groups,
        alignment=alignment,
        present=None if present.all() else present,
        given=splits,
        ids=used.to_numpy(),
    )


def _only(holders: Sequence[Holder], name: str, role: str) -> int:
    where = [number for number, holder in enumerate(holders) if name in holder.names]
    if len(where) != 1:
        known = sorted({known for holder in holders for known in holder.names})
        what = f"column {name!r} (the {role}) stands in {len(where)} of the {len(holders)} files"
        allowed = "exactly one of them" + ("" if where else "; " + nearest(name, known))
        files = ", ".join(str(holder.path) for holder in holders)
        raise DataError(what, files, allowed, "correct the name or `drop` a copy")
    return where[0]


def _open_all(files: Sequence[Path], data: Data) -> list[Holder]:
    """Open the files; a column to drop must stand in at least one of them."""
    names = [open_file(file, data).names for file in files]  # what is left out is not held, but must be somewhere
    known = sorted({name for of_file in names for name in of_file})
    for name in data.drop:
        if name not in known:
            where = ", ".join(str(file) for file in files)
            raise DataError(f"no file has a column {name!r} to drop", where, nearest(name, known))
    holders: list[Holder] = []
    for file, of_file in zip(files, names, strict=True):
        held = sum(holder.nbytes for holder in holders)
        holders.append(open_file(file, data, [name for name in data.drop if name in of_file], held))
    return holders


def ids_of(holder: Holder, name: str) -> Ids:
    """Return the ids of a file. Raises DataError unless they are unique integers or texts."""
    values = holder.column(name, "id")
    if values.dtype.kind == "U":
        values = _whole_numbers(values)
    if values.dtype.kind not in "iuU":
        what = f"column {name!r} (the id) is of type {values.dtype}"
        raise DataError(what, str(holder.path), "integers or text", "write the ids as one of them")
    import pandas as pd  # slow to import, and most data have no ids

    index = pd.Index(values)
    if not index.is_unique:
        twice = index[index.duplicated()]
        what = f"id {twice.tolist()[0]!r} stands in more than one row ({len(twice)} rows repeat an id)"
        raise DataError(what, str(holder.path), "every id once", "keep one row per id")
    return index


def _whole_numbers(texts: Array) -> Array:
    """Return whole numbers if each text is how one is written, so that 7 in one file is 7 in all, and 007 is text."""
    try:
        whole = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    return whole if np.array_equal(whole.astype(np.str_), texts) else texts


def _views(holder: Holder, data: Data) -> tuple[View, ...]:
    """Return all features of a file, whose others may hold some categorical columns. DataError for a column of ids."""
    categorical = data.categorical if data.file else [name for name in data.categorical if name in holder.names]
    views = holder.views(data.no_features, categorical, data.missing is not None)
    for view in views:
        for place, name in enumerate(view.names):
            if numbers_rows(name, view.values[:, place]) and name not in categorical:
                what = f"column {name!r} has another whole number in each row, and would be a feature"
                key = name or repr(name)
                remedy = f"say `drop: [{key}]`, or `id: {key}`; or rename it if it measures something"
                raise DataError(what, str(holder.path), "no feature that numbers the samples", remedy)
    return views


def _one_view(holder: Holder, data: Data, rows: Array) -> View:
    """Return everything a party's file holds as one view, rows in the common order; zeros for those it lacks (−1)."""
    views = _views(holder, data)
    if len(views) == 1:
        return replace(views[0], name=holder.path.name, values=_taken(views[0].values, rows))
    values = np.concatenate([view.values.reshape(len(view.values), -1) for view in views], axis=1)
    names = tuple(name for view in views for name in view.names)
    if len(names) != values.shape[1]:
        what = "holds images beside other arrays"
        raise DataError(what, str(holder.path), "one array of images or several tables", "save them as party files")
    return View(holder.path.name, _taken(values, rows), names)


def _taken(values: Array, rows: Array) -> Array:
    taken = values[rows]
    taken[rows < 0] = 0
    return taken


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
