"""The schedule of a run whose times are arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.programs.schedule import RunSchedule, ScheduledRow
from vflsim.recurrences.chunk import Chunk, undecided
from vflsim.timing.floats import Floats


class ArraySchedule:
    """Collects the schedule of a run chunk by chunk: whom each round uses, and who has stepped by each row.

    Of protocols in lockstep all clients take part in each round; of others each walks its own batches.
    """

    def __init__(self, clients: int) -> None:
        self._everybody = np.arange(clients)
        self._clients: list[NDArray[np.int64]] = []
        self._batches: list[NDArray[np.int64]] = []
        self._begun = np.zeros(clients, np.int64)
        self._rows: list[ScheduledRow] = []
        self._ends: Floats = np.full(clients, np.inf)
        """When clients step along what they have received (s; inf: they have, by the latest row)."""
        self._used = 0
        self._chunk: Chunk | None = None

    @property
    def schedule(self) -> RunSchedule:
        """What has been collected."""
        return RunSchedule(self._clients, self._batches, self._rows)

    def follow(self, chunk: Chunk) -> None:
        """Take the times of the next rounds."""
        if self._chunk is not None:
            self._take(self._chunk.first + len(self._chunk.ends))
        self._chunk = chunk

    def scored(self, now: float, rounds: int, updates: int) -> tuple[float, Mapping[str, float]]:
        """Note a row: see ``Scored``. Raises ``UndecidedError`` if it cannot tell who has stepped."""
        self._take(rounds)
        ends = self._ends
        waiting = self._used - updates
        for chosen in (ends <= now, ends < now, np.zeros(len(ends), bool)):
            still = ~chosen & (ends < np.inf)
            if np.count_nonzero(still) == waiting:
                self._rows.append(ScheduledRow(rounds, still))
                ends[chosen] = np.inf
                return np.nan, {}
        raise undecided("clients step as a row is due", rounds - 1, now)

    def _take(self, rounds: int) -> None:
        """Take the rounds of the chunk until there are so many."""
        chunk, done = self._chunk, len(self._clients)
        if chunk is None or rounds <= done:
            return
        some = slice(done - chunk.first, rounds - chunk.first)
        steps = (chunk.steps if chunk.steps.ndim == 2 else chunk.steps[:, -1])[some]
        places = next((moves.places for moves in chunk.after if moves.direction == "down"), None)
        self._used += steps.size
        if places is None:
            self._clients += [self._everybody] * len(steps)
            self._batches += [*np.arange(done, rounds)]
            self._ends[:] = steps[-1]
            return
        for used, ends in zip(places[some], steps, strict=True):
            order = np.argsort(used)
            clients = used[order]
            self._clients.append(clients)
            self._batches.append(self._begun[clients])
            self._begun[clients] += 1
            self._ends[clients] = ends[order]
