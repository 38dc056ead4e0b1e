"""A data set as tensors: every client's features, and the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import overload

from vflsim.errors import DataError
from vflsim.learning.batches import Split
from vflsim.learning.data.load import PartitionedData
from vflsim.learning.data.raw import Array, DataFacts
from vflsim.learning.learners.inputs import PartyParts
from vflsim.learning.models.shapes import TableShape
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.tasks import Loss, PredictionTask, task_of
from vflsim.learning.training import Training
from vflsim.streams import SERVER
from vflsim.vocabulary.metric import Metric
from vflsim.vocabulary.on_demand import OnDemand, Tensor, TensorOutline, loaded, torch

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class LoadedData:
    """One data set as tensors: features by client (index 0 is client 1) and split, labels by split.

    ``joint`` holds all features of a split, (rows, columns), and ``columns`` are each client's; ``features`` look into
    it, and so does ``active``: the server's features, if it holds any. ``class_names`` are the labels as the file has
    them, by class number; none for regression. ``guessed`` tells that the task follows from the labels alone, ``facts``
    how the files were prepared. ``present``, (rows, parties) by split, says which rows the server (if active) and each
    client hold; None: all. ``rows_digest`` is that of the rows of each split (``PartitionedData``).
    """

    name: str
    joint: Mapping[Split, torch.Tensor]
    columns: tuple[slice, ...]
    features: Sequence[Mapping[Split, torch.Tensor]]
    shapes: tuple[tuple[int, ...], ...]
    labels: Mapping[Split, torch.Tensor]
    task: PredictionTask
    outputs: int
    class_names: tuple[str, ...] = ()
    guessed: bool = False
    active: Mapping[Split, torch.Tensor] | None = None
    server_shape: tuple[int, ...] = ()
    facts: DataFacts = field(default_factory=DataFacts)
    present: dict[Split, torch.Tensor] | None = None
    rows_digest: str = ""
    elsewhere: dict[str, LoadedData] = field(default_factory=dict, repr=False, compare=False)

    def on(self, device: str) -> LoadedData:
        """The same on another device, taken there once."""
        if device == self.joint["train"].device.type == "cpu" or torch.device(device) == self.joint["train"].device:
            return self
        if device not in self.elsewhere:
            joint = {split: tensor.to(device) for split, tensor in self.joint.items()}
            labels = {split: tensor.to(device) for split, tensor in self.labels.items()}
            present = self.present and {split: tensor.to(device) for split, tensor in self.present.items()}
            self.elsewhere[device] = replace(self.with_joint(joint), labels=labels, present=present)
        return self.elsewhere[device]

    def having(self, own_metrics: Mapping[str, Metric], loss: Loss) -> LoadedData:
        """The same with a scenario's own metrics, by name, and trained on its loss."""
        task = self.task.trained_on(loss)
        task = task.having(own_metrics) if own_metrics else task
        return self if task is self.task else replace(self, task=task, elsewhere={})

    def with_joint(self, joint: Mapping[Split, torch.Tensor]) -> LoadedData:
        """The same with other features: (rows, columns) by split."""
        first = slice(0, self.columns[0].start)
        active = None if self.active is None else _window(joint, first, self.active_shape)
        return replace(
            self, joint=joint, features=Windows(joint, self.columns, self.shapes), active=active, elsewhere={}
        )

    @classmethod
    def of(cls, data: PartitionedData, training: Training) -> LoadedData:
        """The tensors of ``data``, whose memory they share."""
        task = task_of(data.task)
        arrays: dict[Split, Array] = dict(zip(SPLITS, data.joint, strict=True))
        outlines = {split: TensorOutline(array.shape, training.torch_dtype, array) for split, array in arrays.items()}
        joint = OnDemand[Split](outlines, lambda split: torch.from_numpy(arrays[split]))
        columns, shapes = tuple(data.parties.columns), tuple(data.parties.shapes)
        features = Windows(joint, columns, shapes)
        known: dict[Split, Array] = dict(zip(SPLITS, data.labels, strict=True))
        outlined = {split: task.outline(values, training.dtype) for split, values in known.items()}
        labels = OnDemand[Split](outlined, lambda split: task.target(known[split], training.torch_dtype))
        outputs = task.outputs(data.classes)
        active = None if data.active is None else _window(joint, data.active.columns, data.active.feature_shape)
        shape = () if data.active is None else data.active.feature_shape
        there = data.present
        return cls(
            data.name,
            joint,
            columns,
            features,
            shapes,
            labels,
            task,
            outputs,
            data.class_names,
            data.guessed,
            active,
            shape,
            data.facts,
            there and {split: torch.from_numpy(rows) for split, rows in zip(SPLITS, there, strict=True)},
            data.rows_digest,
        )

    def parts(
        self,
        party: int,
        training: Training,
        seed: int,
        mechanism: Mechanism | None = None,
        blinded_sum: BlindedSum | None = None,
    ) -> PartyParts:
        """Return what a party holds: features of a client; labels, and features if it is active, of the server."""
        server = party == SERVER
        return PartyParts(
            party=party,
            dtype=training.torch_dtype,
            batch=training.batch_of(self.rows),
            seed=seed,
            device=self.joint["train"].device,
            features=self.active if server else self.features[party - 1],
            labels=self.labels if server else None,
            task=self.task if server else None,
            mechanism=mechanism,
            blinded_sum=blinded_sum,
        )

    def present_at(self, *parties: int) -> dict[Split, torch.Tensor] | None:
        """Return which rows ``parties`` hold, (rows, parties) by split; None if they hold all."""
        if self.present is None:
            return None
        places = [party - (self.active is None) for party in parties]
        chosen = {split: rows[:, places] for split, rows in self.present.items()}
        return None if all(bool(rows.all()) for rows in chosen.values()) else chosen

    @property
    def active_shape(self) -> tuple[int, ...]:
        """The feature shape of the active server. Raises ``DataError`` if the server holds no features."""
        if self.active is None:
            raise DataError("the server holds no features", "partition.active", "true", "set it, or use clients alone")
        return self.server_shape

    def summary(self) -> str:
        """How big it is, in words."""
        sizes = ", ".join(f"{len(self.labels[split]):,} {split}" for split in SPLITS if len(self.labels[split]))
        holders = f"{len(self.shapes)} clients{'' if self.active is None else ' and the server'}"
        coded = sum(map(bool, chain.from_iterable(shape.cardinalities for shape in self.coded_shapes)))
        features = f"{self.joint['train'].shape[1]:,} features{f' ({coded:,} categorical)' if coded else ''}"
        return f"{self.name}, {sizes} rows, {features} at {holders}"

    @property
    def coded_shapes(self) -> list[TableShape]:
        """The feature shapes of parties with categorical columns."""
        return [shape for shape in (self.server_shape, *self.shapes) if isinstance(shape, TableShape)]

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(self.labels["train"])

    @property
    def nbytes(self) -> int:
        """The bytes of all features, labels and marks of absent rows."""
        parts = (self.joint, self.labels, self.present or {})
        return sum(tensor.nbytes for tensors in parts for tensor in tensors.values())


class Windows(Sequence[Mapping[Split, Tensor]]):
    """Each client's features of every split: its columns of the joint ones, made when they are asked for."""

    def __init__(
        self, joint: Mapping[Split, torch.Tensor], columns: Sequence[slice], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self._joint, self._columns, self._shapes = joint, columns, shapes

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, place: int) -> Mapping[Split, torch.Tensor]: ...
    @overload
    def __getitem__(self, place: slice) -> Windows: ...
    def __getitem__(self, place: int | slice) -> Mapping[Split, torch.Tensor] | Windows:
        if isinstance(place, slice):
            return Windows(self._joint, self._columns[place], self._shapes[place])
        return _window(self._joint, self._columns[place], self._shapes[place])


def _window(joint: Mapping[Split, torch.Tensor], columns: slice, shape: Sequence[int]) -> Mapping[Split, torch.Tensor]:
    def make(split: Split) -> Tensor:
        return joint[split][:, columns].view(-1, *shape)

    if loaded():
        return {split: make(split) for split in joint}
    wholes = {split: (len(whole), whole.numpy()[:, columns]) for split, whole in joint.items()}
    outlines = {
        split: TensorOutline((rows, *shape), joint[split].dtype, array.reshape(rows, *shape))
        for split, (rows, array) in wholes.items()
    }
    return OnDemand[Split](outlines, make)
