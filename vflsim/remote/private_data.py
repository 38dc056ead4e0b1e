"""One party's share of a data set: everything of others is a number without memory that spoils what it touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from vflsim.protocol import SERVER, Protocol, Split
from vflsim.scenario import LoadedData, Scenario, ScenarioData
from vflsim.worlds import SPLITS, Training, Windows


class PrivateData:
    """The data of one party of a scenario, in the dtype of each protocol.

    Invariant: of what the scenario's data sets hold, a process that has nothing but this keeps the features of
    ``party`` and the labels that it may hold in some protocol; the rest is let go as soon as it has been read.

    Example::

        data = PrivateData(scenario, party=2)
        data.of("wait").features[1]["train"]  # (rows, columns), those of client 2
    """

    def __init__(self, scenario: Scenario, party: int) -> None:
        self._scenario, self._party = scenario, party
        self._kept: dict[str, LoadedData] = {}

    @classmethod
    def cut(cls, whole: ScenarioData, scenario: Scenario, party: int) -> PrivateData:
        """Cut a party's data out of data that are loaded already, for all protocols of the scenario."""
        data = cls(scenario, party)
        for name in scenario.protocols:
            data._keep(scenario.training_of(name), whole)
        return data

    def of(self, name: str) -> LoadedData:
        """Return what the party holds in protocol ``name``. Raises ``DataError``."""
        said = self._scenario
        kept = self._keep(said.training_of(name), ScenarioData(said))
        return replace(kept, labels=_of_splits(kept.labels, label_splits(said.protocols[name].protocol, self._party)))

    def _keep(self, training: Training, whole: ScenarioData) -> LoadedData:
        if training.dtype not in self._kept:
            protocols = [each.protocol for each in self._scenario.protocols.values()]
            some = {split for protocol in protocols for split in label_splits(protocol, self._party)}
            self._kept[training.dtype] = private_data(whole.of(training), self._party, some)
        return self._kept[training.dtype]


def label_splits(protocol: Protocol, party: int) -> tuple[Split, ...]:
    """Return the splits of which a party holds the labels: the server of all, a client of ``train`` by its protocol."""
    if party == SERVER:
        return SPLITS
    return ("train",) if protocol.labels_at_clients else ()


def private_data(data: LoadedData, party: int, labels: Iterable[Split]) -> LoadedData:
    """Return ``data`` with the features of ``party`` alone, in memory of their own, and labels of these splits.

    The features of others are NaN, (rows, columns), and other labels are NaN or −1: each a single number that is read
    at every place. A computation that used them would end in NaN or in an error. Which rows each party holds
    (``present``) stays.

    Example::

        mine = private_data(data, party=2, labels=())
        bool(mine.features[0]["train"].isnan().all())  # True: those of client 1
    """
    joint = {split: _nothing(tensor) for split, tensor in data.joint.items()}
    features = [*Windows(joint, data.columns, data.shapes)]
    active = data.active
    if active is not None:
        active = _owned(active) if party == SERVER else {split: _nothing(tensor) for split, tensor in active.items()}
    if party != SERVER:
        features[party - 1] = _owned(data.features[party - 1])
    known = {split: tensor.clone() for split, tensor in _of_splits(data.labels, labels).items()}
    return replace(data, joint=joint, features=features, labels=known, active=active, elsewhere={})


def _owned(features: Mapping[Split, torch.Tensor]) -> dict[Split, torch.Tensor]:
    return {split: tensor.clone(memory_format=torch.contiguous_format) for split, tensor in features.items()}


def _of_splits(labels: Mapping[Split, torch.Tensor], known: Iterable[Split]) -> dict[Split, torch.Tensor]:
    held = set(known)
    return {split: tensor if split in held else _nothing(tensor) for split, tensor in labels.items()}


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this shape whose elements are all one number."""
    filler = math.nan if tensor.is_floating_point() else 0 if tensor.dtype == torch.uint8 else -1
    return torch.full((), filler, dtype=tensor.dtype).expand(tensor.shape)
