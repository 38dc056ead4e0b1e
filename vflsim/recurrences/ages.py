"""Ages of the embeddings that rounds of arrays use, round by round, or for windows of many arrivals at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import BatchSequence
from vflsim.learning.learners.staleness import Ages, ArrivalSteps
from vflsim.recurrences.chunk import AgeSums, Bools
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.world import TimedWorld

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
        rows = self._known.get((origin, epoch))
        if rows is None:
            first, sequence = epoch * self._per_epoch, self._sequences[origin]
            batches = [sequence.batch(first + place).ids for place in range(self._per_epoch)]
            rows = self._known[origin, epoch] = np.concatenate(batches)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return rows


_MANY = 2**17
"""Most rows of arrivals that are dealt with together."""


class UsedAges:
    """Ages of what rounds use that some of the clients are in time for: of fresh rows, whose age is 0, and of clients.

    With a ``table`` they also use the rows of all others that have come for earlier rounds.
    """

    def __init__(self, world: TimedWorld, table: bool) -> None:
        clients = len(world.clients)
        self._world, self._arrivals = world, ArrivalSteps(clients)
        self._stamps = np.full((world.sequence.rows, clients), -1, np.int32) if table else None

    def of(self, first: int, used: Bools) -> Callable[[int, int], AgeSums]:
        """Return what sums up the ages of some rounds, from round ``first`` on, given the clients used (n, M)."""

        def ages(start: int, stop: int) -> AgeSums:
            return sum((self._step(first + k, used[k]) for k in range(start, stop)), AgeSums())

        return ages

    def _step(self, number: int, used: Bools) -> AgeSums:
        clients = self._arrivals.step(number, used)
        if self._stamps is None:
            return AgeSums(Ages(number=int(np.count_nonzero(used)) * self._world.length(number)), clients)
        ids = self._world.sequence.batch(number).ids
        stamps = self._stamps[ids]
        stamps[:, used] = number
        self._stamps[ids] = stamps
        return AgeSums(Ages.since(stamps, number), clients)


class ArrivalAges:
    """When each client's row of each sample was refreshed, and when each client arrived last, in server steps.

    A step reads whole rows of the table, of all clients. Its work here does not grow with the clients: the sum of a
    row's ages moves by one client's refresh, and the oldest age of a window of steps is found where a refresh ends it,
    or as the window ends.
    """

    def __init__(self, rows: BatchRows, clients: int) -> None:
        self._rows, self._clients = rows, clients
        self._stamps = np.full((rows.count, clients), -1, np.int32)
        self._flat = self._stamps.reshape(-1)
        self._sums = np.full(rows.count, -clients, np.int64)  # of a row's stamps over the clients
        self._arrivals = ArrivalSteps(clients)

    def window(self, first: int, clients: Ints, indices: Ints) -> AgeSums:
        """Take in steps from ``first`` on; return the sums over them of all ages that they see.

        ``clients`` (n, t) are the places of the clients that arrive for each step, ``indices`` their batches' numbers.
        """
        each = max(1, _MANY // (clients.shape[1] * self._rows.longest))
        total = AgeSums()
        for start in range(0, len(clients), each):
            some = slice(start, start + each)
            total += self._part(first + start, clients[some], indices[some])
        return total

    def _part(self, first: int, clients: Ints, indices: Ints) -> AgeSums:
        steps = np.repeat(np.arange(first, first + len(clients)), clients.shape[1])
        flat_clients, flat_indices = clients.ravel(), indices.ravel()
        reads = None if clients.shape[1] == 1 else self._rows.distinct(steps, flat_clients, flat_indices)
        rows = self._row_ages(steps, flat_clients, flat_indices, reads)
        return AgeSums(rows, self._arrivals.steps(first, len(clients), steps, flat_clients))

    def _row_ages(self, steps: Ints, clients: Ints, indices: Ints, reads: Bools | None) -> Ages:
        """Sum up the ages of rows that the steps read, of arrivals that are ``reads``."""
        ids, arrival = self._rows.of(clients, indices)
        when = steps[arrival]
        before = self._refresh(ids, clients, when, arrival, self._rows.levels(clients, indices))
        order = np.argsort(ids.astype(self._rows.smallest), kind="stable")  # a radix sort, where numbers are small
        ids, when, before = ids[order], when[order], before[order]
        begins = _begins(ids)
        lengths = np.diff(begins, append=len(ids))
        place = np.arange(len(ids))  # where the entries of one row and one step begin
        if reads is None:  # every arrival is of another step, and reads its rows
            read_before = place - np.repeat(begins, lengths)
            uses, numbers = lengths, int(when.sum())
        else:  # a row that arrivals refresh together is read afterwards
            reading = reads[arrival][order]
            same = np.flatnonzero(np.concatenate([[True], (ids[1:] != ids[:-1]) | (when[1:] != when[:-1])]))
            place = np.repeat(same, np.diff(same, append=len(ids)))
            done = np.concatenate([[0], np.cumsum(reading)])
            read_before = done[place] - np.repeat(done[begins], lengths)
            uses = np.add.reduceat(reading, begins, dtype=np.int64)
            numbers = int(when[reading].sum())
        count, moved = int(uses.sum()), when - before
        total = self._clients * numbers - int((self._sums[ids[begins]] * uses).sum())
        total -= int((moved * (np.repeat(uses, lengths) - read_before)).sum())
        self._sums[ids[begins]] += np.add.reduceat(moved, begins)
        oldest = self._oldest(ids, when, before, begins, place)
        return Ages(total, count * self._clients, oldest)

    def _refresh(self, ids: Ints, clients: Ints, when: Ints, arrival: Ints, levels: Ints) -> Ints:
        """Stamp the rows with their steps; return the stamps before. On one level no row is refreshed twice."""
        flat = ids * self._clients + clients[arrival]
        highest = int(levels.max())
        if highest == 0:
            stamps: Ints = self._flat[flat].astype(np.int64)
            self._flat[flat] = when
            return stamps
        before = np.empty(len(ids), np.int64)
        of_rows = levels[arrival]
        for level in range(highest + 1):
            here = np.flatnonzero(of_rows == level)
            before[here] = self._flat[flat[here]]
            self._flat[flat[here]] = when[here]
        return before

    def _oldest(self, ids: Ints, when: Ints, before: Ints, begins: Ints, place: Ints) -> int:
        """Return the oldest age read: by the last step that reads a row before its refresh, or in the window.

        ``place`` is where the entries of an entry's row and step begin: the entry before is the last step's.
        """
        ends = np.append(begins[1:], len(ids)) - 1
        oldest = int((when[ends] - self._stamps[ids[begins]].min(axis=1)).max(initial=0))
        later = np.ones(len(ids), bool)  # than the row's first step in the window
        later[begins] = False
        later = later[place]
        return max(oldest, int((when[place[later] - 1] - before[later]).max(initial=0)))


def _begins(sorted_: Ints) -> Ints:
    """Return where each value begins in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
