"""RoundAges of the embeddings that each round uses: ``learning.staleness``, for many arrivals at once."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.chunk import Bools, RoundAges
from vflsim.recurrences.world import TimedWorld


class ClientAges:
    """Steps since each client's last arrival. Every used row is of the current round: its age is 0."""

    def __init__(self, world: TimedWorld) -> None:
        self.world = world
        self._last = np.full(len(world.clients), -1, np.int64)

    def empty(self, count: int) -> RoundAges:
        """Allocate the ages of ``count`` rounds, for ``note`` to fill."""
        columns = [np.zeros(count, np.int64) for _ in range(6)]
        return RoundAges((columns[0], columns[1], columns[2]), (columns[3], columns[4], columns[5]))

    def note(self, ages: RoundAges, place: int, number: int, used: Bools) -> None:
        """Note that round ``number``, at ``place`` in ``ages``, uses the embeddings of ``used`` (M,)."""
        self._last[used] = number
        total, count, oldest = ages.clients
        count[place] = len(used)
        total[place] = number * len(used) - self._last.sum()
        oldest[place] = number - self._last.min()
        ages.rows[1][place] = np.count_nonzero(used) * self.world.length(number)


class TableAges(ClientAges):
    """Additionally notes the ages of rows of the server's table, of all clients and all samples of the batch."""

    def __init__(self, world: TimedWorld) -> None:
        super().__init__(world)
        self._stamps = np.full((world.sequence.rows, len(world.clients)), -1, np.int32)

    def note(self, ages: RoundAges, place: int, number: int, used: Bools) -> None:
        """Note that round ``number``, at ``place`` in ``ages``, refreshes its batch's rows of ``used`` (M,)."""
        super().note(ages, place, number, used)
        ids = self.world.sequence.batch(number).ids
        stamps = self._stamps[ids]
        stamps[:, used] = number
        self._stamps[ids] = stamps
        total, count, oldest = ages.rows
        count[place] = stamps.size
        total[place] = number * stamps.size - int(stamps.sum(dtype=np.int64))
        oldest[place] = number - int(stamps.min())
