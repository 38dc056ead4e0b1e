"""Times of evaluation: at the end of an instant, like in the conductor of the event path."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from vflsim.recurrences.chunk import Chunk
from vflsim.scenario.evaluate import Every
from vflsim.timing.floats import Floats


class EvaluationSchedule(Protocol):
    """Times of evaluation, chunk by chunk; the next chunk gives those from the end of a chunk's last round on."""

    def times(self, chunk: Chunk) -> Floats:
        """Return the instants before the end of the chunk's last round, ascending (n,)."""


def evaluation_schedule(every: Every) -> EvaluationSchedule:
    """Make the schedule of ``evaluate.every``."""
    if every.unit == "seconds":
        return _Seconds(every.amount)
    return _Rounds(int(every.amount)) if every.unit == "rounds" else _Updates(int(every.amount))


class _Rounds:
    """Evaluates at the end of every ``amount``-th round."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._deferred = np.empty(0)

    def times(self, chunk: Chunk) -> Floats:
        done = chunk.first + 1 + np.arange(len(chunk.ends))
        times = np.concatenate([self._deferred, chunk.ends[done % self._amount == 0]])
        early = times < chunk.ends[-1]
        self._deferred = times[~early]
        due: Floats = times[early]
        return due


class _Updates:
    """Evaluates at the instants in which the number of client steps passes a multiple of ``amount``."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._count = 0
        self._later = np.empty(0)

    def times(self, chunk: Chunk) -> Floats:
        steps = np.sort(_progress(self._later, chunk.steps, after=-math.inf))
        early = int(np.searchsorted(steps, chunk.ends[-1]))
        number = self._count + 1 + np.arange(early)
        self._count, self._later = self._count + early, steps[early:]
        due: Floats = steps[:early][number % self._amount == 0]
        return due


class _Seconds:
    """Evaluates at multiples of a duration, and skips those without a change since the last one."""

    def __init__(self, amount: float) -> None:
        self._amount = amount
        self._last = -math.inf
        self._next: float | None = None
        self._later = np.empty(0)

    def times(self, chunk: Chunk) -> Floats:
        horizon, progress = float(chunk.ends[-1]), None
        times: list[float] = []
        while True:
            if self._next is None:
                if progress is None:
                    progress = np.sort(_progress(self._later, chunk.ends, chunk.steps, after=self._last))
                place = int(np.searchsorted(progress, self._last, side="right"))
                if place == len(progress) or progress[place] >= horizon:
                    break
                now = float(progress[place])
                at = math.ceil(now / self._amount) * self._amount
                self._next = now + max(0.0, at - now)
            if self._next >= horizon:
                break
            times.append(self._next)
            self._last, self._next = self._next, None
        unseen = self._last if self._next is None else self._next
        self._later = _progress(self._later, chunk.ends, chunk.steps, after=unseen)
        return np.array(times)


def _progress(*times: Floats, after: float) -> Floats:
    """Return all finite ``times`` later than ``after`` (n,)."""
    return np.concatenate([each[(each > after) & (each < math.inf)] for each in times])
