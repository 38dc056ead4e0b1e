"""Data sets that a process has prepared, kept for scenarios that have the same."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vflsim.files import machine_memory
from vflsim.learning.data.load import load
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.shared import SharedData
from vflsim.learning.data.spec import Data
from vflsim.learning.training import Training

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
        found = Path(path).stat()
        return path, found.st_mtime_ns, found.st_size
    return path, 0, 0
