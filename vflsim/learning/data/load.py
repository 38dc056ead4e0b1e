"""Loads a scenario's data: from its data section to the features and labels of each party."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vflsim.errors import DataError
from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.data.files import read_entry
from vflsim.learning.data.joint import RowSplit, Splits, edges, given_split, split_rows, window
from vflsim.learning.data.labels import EncodedLabels, encode
from vflsim.learning.data.partition import Partition, cut
from vflsim.learning.data.preparation import joined_splits, prepared
from vflsim.learning.data.raw import Array, DataFacts, RawData, View, feature_names, nearest
from vflsim.learning.data.spec import DEFAULT_TEST_FRACTION, Data, FeatureNoise, TaskName
from vflsim.learning.data.user import read_file, read_parties
from vflsim.learning.models.shapes import TableShape
from vflsim.vocabulary.expressions import members

Dtype = Literal["float32", "float64"]


@dataclass(frozen=True)
class PartyData:
    """The features of one party. Arrays have shape (rows, *feature_shape), scaled, of the wanted dtype.

    They are windows on ``columns`` of the joint arrays (``PartitionedData.joint``) and share their memory.
    ``feature_shape`` is (features,), a ``TableShape`` where some are categorical, or (channels, height, width);
    ``feature_names`` has one name per feature in flattened order; ``source`` says in words which part of the data this
    is.
    """

    name: str
    source: str
    feature_shape: tuple[int, ...]
    feature_names: tuple[str, ...]
    columns: slice
    train: Array
    validation: Array
    test: Array


@dataclass(frozen=True)
class PartitionedData:
    """A data set, cut up: row k of a split is the same sample at every party and in the labels.

    ``joint`` holds all features, once: per split (rows, columns), the columns of all clients side by side in client
    order, after those of the server if it is ``active``; C-contiguous, starting at a multiple of 64 bytes.
    ``labels`` is what the server holds: (rows,) each, class numbers in int64 for multiclass, otherwise 0/1 or values in
    the wanted dtype. ``classes`` is None for regression; ``class_names`` are the labels as the file has them, by class
    number; ``guessed``: the task follows from the labels alone; ``outputs`` is the number of columns that the
    server predicts (classes for multiclass, otherwise 1). ``facts`` tell how the files were prepared.
    ``present`` says, per split, which rows the server (if ``active``) and each client hold, (rows, parties) of bool;
    None: all. Features of other rows are 0. ``rows_digest`` is a SHA-256 of which rows are in which split: of their
    ids, where they have some, and of the parties that hold them.
    """

    name: str
    parties: Holders
    joint: Splits
    labels: Splits
    task: TaskName
    classes: int | None
    class_names: tuple[str, ...]
    guessed: bool = False
    active: PartyData | None = None
    facts: DataFacts = field(default_factory=DataFacts)
    present: Splits | None = None
    rows_digest: str = ""

    @property
    def outputs(self) -> int:
        """Number of columns that the server predicts."""
        return self.classes if self.task == "multiclass" and self.classes else 1

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.parties)

    @property
    def features(self) -> int:
        """Number of features of all parties together."""
        return int(self.joint.train.shape[1])

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of the train, validation and test splits."""
        return {split: len(labels) for split, labels in self.labels._asdict().items()}


def load(
    data: Data,
    partition: Partition,
    dtype: Dtype = "float32",
    folder: Path | str | None = None,
    symbols: Mapping[str, float] | None = None,
) -> PartitionedData:
    """Read, split, cut and scale the data; the same arguments and files give the same arrays, row for row.

    Rows of a split stand in the order of the file (of the first party's file). Every party's features are scaled by
    statistics of its own training rows. ``folder`` is where relative file names start (the scenario's folder; the
    current one if left out). ``symbols`` are the constants that ``data.noise.select`` may use. Raises DataError for
    anything that is absent, damaged or not what the sections say.
    """
    if data.parties is not None and partition.by not in (None, "views"):
        what = f"by: {partition.by}, but data.parties gives every client its own file"
        raise DataError(what, "partition.by", "views, or leave it out")
    raw = _read(data, Path(folder or "."))
    if data.drop and data.name is not None:
        raw = _dropped(raw, data.drop)
    if data.parties is not None:  # one file, too, is a view
        clients = partition.clients or len(raw.views) - partition.active
        partition = partition.model_copy(update={"clients": clients or None, "by": "views"})
    views = cut(partition, raw.views)
    known = CATALOGUE[data.name].task if data.name is not None and data.task == "auto" else data.task
    target = encode(raw.target, known, raw.where)
    split = _split(data, raw, target)
    names = partition.names_of(len(views))
    splits = [split if raw.present is None else split.where(raw.present[:, place]) for place in range(len(views))]
    views, facts = prepared(views, splits, data, np.dtype(dtype), names)
    joint = Splits(*joined_splits(views, split, splits, data.scale, np.dtype(dtype), names))
    labels = Splits.of(_labels(target, dtype, raw.where), split)
    name = data.name or Path(data.file or f"{len(views)} party files").name
    classes = len(target.class_names) or None
    parties = Holders(views, joint, names, edges(views), _shapes(views))
    active, holders = (parties[0], parties.but_first()) if partition.active else (None, parties)
    if not len(holders):
        raise DataError("only the server would hold features", "partition", "at least one client", "add clients")
    if data.noise is not None:
        _make_noisy(joint, holders, data.noise, data.split_seed, symbols or {})
    present = None
    if raw.present is not None:
        present = Splits.of(raw.present, split)
        for array, here in zip(joint, present, strict=True):
            for place, columns in enumerate(parties.columns):
                array[~here[:, place], columns] = 0  # in the place of rows that a party lacks
    return PartitionedData(
        name,
        holders,
        joint,
        labels,
        target.task,
        classes,
        target.class_names,
        target.guessed,
        active,
        replace(facts, alignment=raw.alignment),
        present,
        split.digest(raw.ids, raw.present),
    )


def describe(data: Data, partition: Partition, folder: Path | str | None = None) -> dict[str, Any]:
    """Describe the data, by loading them: rows per split, features, clients, classes, and each party's part.

    The arrays would take ``bytes`` in float32. Raises what ``load`` raises.
    """
    loaded = load(data, partition, folder=folder)
    holders = (*([] if loaded.active is None else [loaded.active]), *loaded.parties)
    return {
        "name": loaded.name,
        "rows": loaded.sizes,
        "features": loaded.features,
        "clients": loaded.clients,
        "task": loaded.task,
        "classes": loaded.classes,
        "outputs": loaded.outputs,
        "bytes": sum(array.nbytes for array in loaded.joint),
        "parties": [{"name": p.name, "source": p.source, "feature_shape": p.feature_shape} for p in holders],
    }


def _read(data: Data, folder: Path) -> RawData:
    if data.name is not None:
        return read_entry(CATALOGUE[data.name])
    return read_parties(data, folder) if data.file is None else read_file(data, folder / data.file)


def _dropped(raw: RawData, drop: tuple[str, ...]) -> RawData:
    if any(view.is_image for view in raw.views):
        raise DataError("pixels cannot be dropped", "data.drop", "columns of a table", "leave `drop` out")
    known = [name for view in raw.views for name in view.names]
    unknown = [name for name in drop if name not in known]
    if unknown:
        raise DataError(f"there is no column {unknown[0]!r} to drop", "data.drop", nearest(unknown[0], known))
    views = []
    for view in raw.views:
        columns = [index for index, name in enumerate(view.names) if name not in drop]
        if not columns:
            raise DataError(f"nothing is left of {view.name}", "data.drop", "at least one column of every view")
        views.append(view.some(view.name, columns))
    return RawData(raw.where, tuple(views), raw.target, raw.groups, raw.official_test)


def _split(data: Data, raw: RawData, target: EncodedLabels) -> RowSplit:
    strata = np.zeros(raw.rows, dtype=np.int64) if target.task == "regression" else target.values
    if raw.given is not None:
        return given_split(raw.given, f"data.split_column, {data.split_column!r}")
    by_rows = data.split == "random"
    return split_rows(
        strata,
        None if by_rows else raw.groups,
        DEFAULT_TEST_FRACTION if data.test_fraction is None else data.test_fraction,
        data.validation_fraction,
        None if by_rows else raw.official_test,
        data.split_seed,
        data.train_rows,
    )


def _make_noisy(joint: Splits, clients: Holders, noise: FeatureNoise, seed: int, symbols: Mapping[str, float]) -> None:
    try:
        noisy = tuple(members(noise.select, {**symbols, "N": len(clients)}))
    except ValueError as error:
        raise DataError(str(error), "data.noise.select") from None
    for client in noisy:
        if isinstance(clients.shapes[client - 1], TableShape):
            what = f"client {client} has categorical columns, and noise is for numbers"
            raise DataError(what, "data.noise.select", "clients with numbers alone", "set `encoding: one_hot`")
    columns = {client: clients.columns[client - 1] for client in noisy}
    for split, array in joint._asdict().items():
        noise.put_on(array, columns, split, seed)


def _labels(target: EncodedLabels, dtype: Dtype, where: str) -> Array:
    """The labels as they are trained on. DataError where the sum of their squares is no number of ``dtype``."""
    if target.task == "multiclass":
        return target.values
    largest = float(np.abs(target.values).max())
    limit = math.sqrt(float(np.finfo(dtype).max) / len(target.values)) / 2  # of an error, which may be twice as large
    if largest > limit:
        what, allowed = f"a label is as large as {largest:g}", f"up to {limit:.2g}, so that squared errors are {dtype}"
        remedy = "rescale the label" + (", or use training.dtype: float64" if dtype == "float32" else "")
        raise DataError(what, where, allowed, remedy)
    return target.values.astype(dtype)


@dataclass(frozen=True)
class Holders:
    """The parties' data. Each is made when it is asked for; ``columns`` and ``shapes`` are there for all."""

    views: Sequence[View]
    joint: Splits
    names: Sequence[str]
    columns: Sequence[slice]
    shapes: Sequence[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, place: int) -> PartyData:
        view, columns = self.views[place], self.columns[place]
        arrays = (window(joint, view, columns) for joint in self.joint)
        return PartyData(self.names[place], view.name, self.shapes[place], feature_names(view), columns, *arrays)

    def __iter__(self) -> Iterator[PartyData]:
        return map(self.__getitem__, range(len(self)))

    def but_first(self) -> Holders:
        """Return all but the first of them."""
        return Holders(self.views[1:], self.joint, self.names[1:], self.columns[1:], self.shapes[1:])


def _shapes(views: Sequence[View]) -> list[tuple[int, ...]]:
    """Return the parties' feature shapes; equal ones are one object."""
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    shapes = map(_shape, views)
    return [shape if isinstance(shape, TableShape) else known.setdefault(shape, shape) for shape in shapes]


def _shape(view: View) -> tuple[int, ...]:
    if not any(view.categories):
        return view.values.shape[1:]
    return TableShape([len(names) + 1 if names else 0 for names in view.categories])
