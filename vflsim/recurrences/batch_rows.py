"""The rows of many batches at once, of a sequence that clients share or of each client's own."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import BatchSequence
from vflsim.recurrences.chunk import Bools
from vflsim.recurrences.stages import Ints

_REMEMBERED = 2**22
"""The rows of remembered epochs, if clients share their batches."""


class BatchRows:
    """Rows of batches by the place of a client and a number: of one shared sequence, or of a sequence per client."""

    def __init__(self, sequences: list[BatchSequence]) -> None:
        self._sequences = sequences
        first = sequences[0]
        self.count, self.longest = first.rows, first.size
        self._per_epoch, self._uniform = first.per_epoch, first.uniform
        self._lengths = np.array([first.length(place) for place in (0, first.per_epoch - 1)])
        self._whole = first.size * (first.per_epoch - 1) + int(self._lengths[1])
        self._most = 2 * len(sequences) if len(sequences) > 1 else max(8, min(256, _REMEMBERED // self._whole))
        self._known: OrderedDict[tuple[int, int], NDArray[np.int64]] = OrderedDict()
        self.smallest = np.dtype(np.uint16 if self.count <= 2**16 else np.int32)
        """The smallest type of a row's number."""

    @property
    def shared(self) -> bool:
        """Whether all clients have the same batches."""
        return len(self._sequences) == 1

    def each(self, clients: list[int], indices: list[int]) -> list[tuple[tuple[int, int], NDArray[np.int64]]]:
        """Return a key and the rows of each of these batches: the same key for the same batch."""
        batches = []
        for client, number in zip(clients, indices, strict=True):
            origin = 0 if self.shared else client
            epoch, place = divmod(number, self._per_epoch)
            rows = self._epoch(origin, epoch)[place * self.longest : (place + 1) * self.longest]
            batches.append(((origin, number), rows))
        return batches

    def distinct(self, steps: Ints, clients: Ints, indices: Ints) -> Bools:
        """Return which arrivals are the first of their step with their batch."""
        chosen = np.ones(len(steps), bool)
        if self.shared:
            key = steps * (int(indices.max()) + 1) + indices
            chosen[:] = False
            chosen[np.unique(key, return_index=True)[1]] = True
        return chosen

    def levels(self, clients: Ints, indices: Ints) -> Ints:
        """Return numbers from 0, such that no client has a row twice among the batches of one number."""
        turns: Ints = indices if self._uniform else indices // self._per_epoch
        if turns.min() == turns.max():
            return np.zeros(len(turns), np.int64)
        least = np.full(int(clients.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, clients, turns)
        levels: Ints = turns - least[clients]
        return levels

    def of(self, clients: Ints, indices: Ints) -> tuple[Ints, Ints]:
        """Return the rows of these batches, one after the other, and for each row the number of its batch here."""
        epochs, places = np.divmod(indices, self._per_epoch)
        origins = np.zeros(len(epochs), np.int64) if self.shared else clients
        width = int(epochs.max()) + 1
        keys, which = np.unique(origins * width + epochs, return_inverse=True)
        table = np.stack([self._epoch(int(key) // width, int(key) % width) for key in keys])
        starts = which.reshape(-1) * self._whole + places * self.longest
        if self._lengths[0] == self._lengths[1]:
            rows = table.reshape(-1)[starts[:, None] + np.arange(self.longest)]
            return rows.reshape(-1), np.arange(len(starts)).repeat(self.longest)
        lengths = self._lengths[(places == self._per_epoch - 1).astype(np.int64)]
        number = np.arange(len(lengths)).repeat(lengths)
        within = np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return table.reshape(-1)[starts[number] + within], number

    def _epoch(self, origin: int, epoch: int) -> NDArray[np.int64]:
        """Return the rows of all batches of an epoch."""
        rows = self._known.get((origin, epoch))
        if rows is None:
            first, sequence = epoch * self._per_epoch, self._sequences[origin]
            batches = [sequence.batch(first + place).ids for place in range(self._per_epoch)]
            rows = self._known[origin, epoch] = np.concatenate(batches)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return rows
