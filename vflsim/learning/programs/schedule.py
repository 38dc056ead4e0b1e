"""What a run does, known before a weight moves: whose embeddings each server step uses, and who has stepped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.batches import Batch, BatchSequence


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """The state of a run that a row of metrics describes.

    It has done so many ``rounds``. The clients ``waiting``, (M,), have a gradient to come or at hand, and have not yet
    stepped along it; those without one do not matter.
    """

    rounds: int
    waiting: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """The rounds of a run of split training, by client number from 0.

    Round k uses embeddings of ``clients[k]``, ascending, of batches with these numbers: ``batches[k]``. Unless
    ``steps`` says otherwise, a client steps along what comes back before it embeds again. Invariants: a client embeds
    with the weights of its latest step, and steps on the batch that it has embedded; it uses its batches in order.
    """

    clients: Sequence[NDArray[np.int64]]
    batches: Sequence[NDArray[np.int64]]
    rows: Sequence[ScheduledRow]
    steps: Sequence[NDArray[np.bool_]] | None = None

    @property
    def in_lockstep(self) -> bool:
        """Whether every round uses embeddings of all clients of one batch."""
        first = self.clients[0] if self.clients else None
        return all(each is first for each in self.clients) and all(numbers.ndim == 0 for numbers in self.batches)


class Cursor:
    """The place of a run in its ``schedule``: the next round, and which batch each client embeds next."""

    def __init__(self, schedule: RunSchedule, sequences: Sequence[BatchSequence]) -> None:
        self.schedule, self._sequences = schedule, sequences
        self.round = self.row = 0
        self._next = np.zeros(len(sequences), np.int64)
        self._numbers = None if schedule.in_lockstep else _by_client(schedule, len(sequences))

    @property
    def over(self) -> bool:
        """Whether the last row has been written."""
        return self.row == len(self.schedule.rows)

    @property
    def ahead(self) -> int:
        """The number of rounds until the next row."""
        return self.schedule.rows[self.row].rounds - self.round

    @property
    def waiting(self) -> NDArray[np.bool_]:
        """Which clients have not stepped by the next row, (M,)."""
        return self.schedule.rows[self.row].waiting

    @property
    def batch(self) -> Batch:
        """The batch of the next round, in lockstep."""
        return self._sequences[0].batch(int(self.schedule.batches[self.round]))

    @property
    def clients(self) -> list[int]:
        """Whose embeddings the next round uses."""
        used: list[int] = self.schedule.clients[self.round].tolist()
        return used

    def next_batch(self, client: int) -> Batch | None:
        """Return the batch that a client embeds next; None if no later round uses one."""
        if self._numbers is None:
            return self.batch if self.round < len(self.schedule.batches) else None
        numbers, place = self._numbers[client], self._next[client]
        return self._sequences[client].batch(int(numbers[place])) if place < len(numbers) else None

    def batch_of(self, client: int, number: int) -> Batch:
        """Return a batch of a client's sequence."""
        return self._sequences[client].batch(number)

    def steps(self) -> list[bool]:
        """Return for each client of the next round whether it steps along what comes back."""
        used = self.schedule.clients[self.round]
        return [True] * len(used) if self.schedule.steps is None else self.schedule.steps[self.round].tolist()

    def advance(self) -> None:
        """Go on to the round after the next."""
        if self._numbers is not None:
            self._next[self.schedule.clients[self.round]] += 1
        self.round += 1

    def at(self, rounds: int, rows: int) -> None:
        """Go to the place after so many rounds, of a new cursor."""
        while self.round < rounds:
            self.advance()
        self.row = rows


def _by_client(schedule: RunSchedule, count: int) -> list[NDArray[np.int64]]:
    """Return the numbers of the batches that each client embeds, in order."""
    if not schedule.clients:
        return [np.empty(0, np.int64)] * count
    clients = np.concatenate(schedule.clients)
    sizes = zip(schedule.batches, schedule.clients, strict=True)
    numbers = np.concatenate([np.broadcast_to(batches, used.shape) for batches, used in sizes])
    return [numbers[clients == client] for client in range(count)]
