"""Data sets that a process has prepared, kept for scenarios that have the same, or shared by processes of a machine.

The file is Linux's ``memfd``: it has no place in any folder, the kernel removes it with the last process that has it
open, however that process ends, and its seals keep everybody from changing what is in it. Processes map it privately:
one that writes to its tensors would write to copies of pages of its own.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vflsim.files import machine_memory
from vflsim.learning.batches import Split
from vflsim.learning.data.load import load
from vflsim.learning.data.loaded_data import LoadedData, Windows
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.spec import Data
from vflsim.learning.training import Training
from vflsim.vocabulary.on_demand import Tensor, torch

_ALIGNMENT = 64
"""Bytes. All features start at a multiple of it: where memory starts can change the last bits of a sum over it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor of a data set begins in its file, in bytes, and what it is."""

    part: str
    split: Split
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Outline:
    """What a data set is apart from its numbers, and where each of its tensors stands in its file of ``size`` bytes.

    It can be pickled. Example: ``outline.mapped(descriptor).joint["train"]``, (rows, columns).
    """

    bare: LoadedData
    places: tuple[_Place, ...]
    size: int

    def mapped(self, descriptor: int) -> LoadedData:
        """Return the data set, whose tensors are in the file; the descriptor may be closed then. Raises OSError."""
        memory = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_COPY)
        parts: dict[str, dict[Split, Tensor]] = {"joint": {}, "labels": {}, "present": {}}
        for place in self.places:
            parts[place.part][place.split] = _tensor(memory, place)
        labels, present = parts["labels"], parts["present"] or None
        return replace(self.bare.with_joint(parts["joint"]), labels=labels, present=present)


class SharedData:
    """A data set in a file that other processes can map: ``descriptor`` is the file, ``outline`` says what is in it.

    Invariant: the file exists as long as this object, a tensor of ``data`` or another process that has opened it.
    """

    def __init__(self, data: LoadedData) -> None:
        """Write a data set on the CPU to a new file; ``data`` is the same in there. Raises OSError."""
        self.descriptor = -1
        places, size = [], 0
        for part, split, tensor in _tensors(data):
            places.append(_Place(part, split, size, tuple(tensor.shape), tensor.dtype))
            size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        active = None if data.active is None else dict[Split, Tensor]()
        bare = replace(
            data,
            joint={},
            features=Windows({}, data.columns, data.shapes),
            labels={},
            active=active,
            present=None,
            elsewhere={},
        )
        self.outline = Outline(bare, tuple(places), size)
        self.descriptor = _file(self.outline, data)
        self.data = self.outline.mapped(self.descriptor)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def can_share() -> bool:
    """Return whether this system has files without a name, and passes them between processes: Linux does.

    Example: ``if can_share(): SharedData(data)``
    """
    return sys.platform == "linux" and hasattr(os, "memfd_create")


def _file(outline: Outline, data: LoadedData) -> int:
    """Write all tensors to a new file that nobody can change then; return its descriptor. Raises OSError."""
    import fcntl  # Linux has it, as it has such files

    descriptor = os.memfd_create("vflsim-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            for place, (_, _, tensor) in zip(outline.places, _tensors(data), strict=True):
                file.seek(place.start)
                file.write(tensor.contiguous().numpy().data.cast("B") if tensor.numel() else b"")
            file.truncate(outline.size)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _tensors(data: LoadedData) -> Iterator[tuple[str, Split, Tensor]]:
    parts: Mapping[str, Mapping[Split, Tensor]] = {
        "joint": data.joint,
        "labels": data.labels,
        "present": data.present or {},
    }
    return ((part, split, tensor) for part, tensors in parts.items() for split, tensor in tensors.items())


def _tensor(memory: mmap.mmap, place: _Place) -> Tensor:
    count = torch.Size(place.shape).numel()
    if not count:
        return torch.empty(place.shape, dtype=place.dtype)
    return torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.start).reshape(place.shape)


SHARE = 0.125
"""The share of the machine's memory that kept data sets may take."""
_AT_LEAST = 2
"""Data sets that are kept whatever they take: one scenario may train in two precisions."""
_CLIENT_BYTES = 500
"""Bytes of a data set for each client, beside its features."""


class Shelf:
    """Data sets as tensors, each read and prepared once as long as there is room; the latest stay.

    The points of a sweep share one, and threads may. Invariants: equal keys are equal data; besides the latest two, all
    data sets together take at most ``SHARE`` of the machine's memory.

    Example::

        shelf = Shelf()
        shelf.of(shelf.key(data, partition, training, {}), data, partition, training, {}).rows
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: OrderedDict[str, LoadedData] = OrderedDict()
        self._shared: dict[str, SharedData] = {}

    @staticmethod
    def key(data: Data, partition: Partition, training: Training, symbols: Mapping[str, float]) -> str:
        """Return what decides the tensors: the sections, the precision, and the present state of the user's files."""
        files = [data.file, data.labels, *(data.parties or ())]
        used = dict(symbols) if data.noise is not None else {}  # nothing else has formulas
        sections = data.model_dump_json(), partition.model_dump_json()
        return json.dumps([*sections, training.dtype, used, [_state(file) for file in files if file is not None]])

    def of(
        self, key: str, data: Data, partition: Partition, training: Training, symbols: Mapping[str, float]
    ) -> LoadedData:
        """Return the data set that has this key; read and prepare it unless it is here. Raises ``DataError``."""
        with self._lock:
            if key not in self._kept:
                self._put(key, LoadedData.of(load(data, partition, training.dtype, symbols=symbols), training))
            self._kept.move_to_end(key)
            return self._kept[key]

    def shared(
        self, key: str, data: Data, partition: Partition, training: Training, symbols: Mapping[str, float]
    ) -> SharedData:
        """Return the data set that has this key in a file for other processes; ``of`` then returns what is in there.

        Raises ``DataError``, and ``OSError`` if there is no room for the file.
        """
        with self._lock:
            loaded = self.of(key, data, partition, training, symbols)
            if key not in self._shared:
                self._shared[key] = SharedData(loaded)
                self._kept[key] = self._shared[key].data
            return self._shared[key]

    def _put(self, key: str, loaded: LoadedData) -> None:
        self._kept[key] = loaded
        room = SHARE * machine_memory()
        while len(self._kept) > _AT_LEAST and sum(map(_bytes, self._kept.values())) > room:
            gone, _ = self._kept.popitem(last=False)
            self._shared.pop(gone, None)


def _bytes(data: LoadedData) -> int:
    return data.nbytes + _CLIENT_BYTES * len(data.shapes)


def _state(path: str) -> tuple[str, int, int]:
    with suppress(OSError, ValueError):  # such as a null character: who reads the file says so
        status = Path(path).stat()
        return path, status.st_mtime_ns, status.st_size
    return path, 0, 0
