"""One party's share of a data set, and what follows from it: what processes must have in common, the largest frame."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from vflsim.protocol import SERVER, Peering, Protocol, Split
from vflsim.remote.control import Common
from vflsim.scenario import LoadedData, Scenario, ScenarioData, client_models, placeless, setting
from vflsim.worlds import SPLITS, Training, Windows, __version__, exchanges_of


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


_ROOM = 2**20


def digest_of(scenario: Scenario) -> str:
    """Return the SHA-256 of a scenario's resolved text. Parties may keep their files in other folders."""
    return hashlib.sha256(placeless(scenario).encode()).hexdigest()


def common(scenario: Scenario, data: PrivateData) -> Common:
    """Return what this process must have in common with the others of a run."""
    rows = data.of(next(iter(scenario.protocols))).rows_digest
    return Common(digest_of(scenario), rows, __version__)


def largest_frame(scenario: Scenario, data: PrivateData) -> int:
    """Return an upper bound of a message's bytes: all parties' tensors of the largest split, in doubles, and heads."""
    most = 0
    for name in scenario.protocols:
        loaded = data.of(name)
        rows = max(len(labels) for labels in loaded.labels.values())
        widths = sum(model.embedding for model in client_models(scenario, name)) + loaded.outputs
        most = max(most, 8 * rows * (4 * widths + 1))
    return min(most + _ROOM, 2**32 - 1)


def largest_between_clients(scenario: Scenario, data: PrivateData, client: int) -> int:
    """Return an upper bound of the bytes of another client's message to this one, over all protocols.

    Where a protocol does not say what such messages contain, that of messages to the server counts.
    """
    most = 0
    for name, said in scenario.protocols.items():
        if isinstance(said.protocol, Peering):
            resolved = setting(scenario, name, data.of(name))
            rows = said.protocol.batch_plan().batches(resolved.data.rows, resolved.training, 0).size
            others = [other for other in resolved.clients if other != client]
            exchanges = exchanges_of(said.protocol, resolved)
            contents = [exchanges.contents(other, client, rows) for other in others]
            alternatives = [each for kinds in contents for some in kinds.values() for each in some]
            sizes = [each.nbytes(resolved.codec, client) for each in alternatives]
            most = max([most, *sizes] if sizes else [most, largest_frame(scenario, data)])
    return min(most + _ROOM, 2**32 - 1)
