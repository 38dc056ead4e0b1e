"""The end of a run by the earliest of its stop rules."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflsim.intervals.variation import Variation
from vflsim.recurrences.chunk import Chunk
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.stages import Ints
from vflsim.scenario.stop import Stop
from vflsim.simulation.precision import PrecisionRule
from vflsim.timing.base import Floats

Moment = Literal["round", "update", "time"]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run: its time, the completed rounds of the chunk, the reason, and the ending event.

    A ``round``, or an ``update`` (the ``updates``-th), ends it in the middle of an instant; ``time`` at the end of one.
    """

    time: float
    rounds: int
    reason: str
    moment: Moment
    updates: int | None = None


class StopRules:
    """Looks for the end of a run, chunk by chunk."""

    def __init__(self, stop: Stop, epochs: Callable[[int, int], float], variation: Variation | None = None) -> None:
        self._stop, self._epochs = stop, epochs
        self._precise = PrecisionRule(stop.precision, variation) if stop.precision is not None else None
        self._used = 0
        self._before = 0.0

    def find(self, chunk: Chunk, updates: int, waiting: Floats) -> End | None:
        """Return the end of the run if it falls into ``chunk``.

        ``updates`` counts the client steps before the chunk's first round began; ``waiting`` are the times of later
        steps from earlier rounds. Raises ``UndecidedError``.
        """
        found = self._by_round(chunk)
        if self._stop.time is not None:
            rounds = int(np.searchsorted(chunk.ends, self._stop.time, side="right"))
            if rounds < (len(chunk.ends) if found is None else found.rounds):
                found = End(self._stop.time, rounds, "time", "time")
        if self._stop.updates is not None:
            found = _by_update(chunk, self._stop.updates, updates, waiting, found)
        return found

    def _by_round(self, chunk: Chunk) -> End | None:
        stop, count = self._stop, len(chunk.ends)
        used = self._used + _used(chunk)
        durations = np.diff(chunk.ends, prepend=self._before)
        self._used, self._before = int(used[-1]), float(chunk.ends[-1])
        done: dict[str, int] = {}
        if stop.rounds is not None:
            done["rounds"] = stop.rounds - chunk.first
        if stop.epochs is not None:
            reached = bisect_left(
                range(count),
                stop.epochs,
                key=lambda place: self._epochs(chunk.first + place + 1, int(used[place])),
            )
            done["epochs"] = reached + 1
        if self._precise is not None:
            done["precision"] = self._precise.extend(durations) or count + 1
        first = min(done, key=done.__getitem__, default=None)
        if first is None or done[first] > count:
            return None
        return End(float(chunk.ends[done[first] - 1]), done[first], first, "round")


def _by_update(chunk: Chunk, limit: int, updates: int, waiting: Floats, other: End | None) -> End | None:
    """Return the end by the ``limit``-th client step, after ``updates`` so far, if it precedes the ``other`` end."""
    needed = limit - updates
    before = chunk.ends[-1] if other is None else other.time
    steps = np.concatenate([waiting, chunk.steps[chunk.steps <= before]])
    steps = steps[steps <= before]
    if len(steps) < needed:
        return other
    now = float(np.partition(steps, needed - 1)[needed - 1])
    if now == chunk.ends[-1] and other is None:  # the next chunk decides
        return other
    done = int(np.searchsorted(chunk.ends, now, side="right"))
    if done and chunk.ends[done - 1] == now:
        # Steps with the gradient of this round follow it; the order of earlier ones is undecided.
        sooner = chunk.steps[: done if chunk.steps_during else done - 1]
        earlier = np.count_nonzero(waiting == now) + np.count_nonzero(sooner == now)
        if earlier:
            raise undecided("a client's step ends with a server's step", chunk.first + done - 1, now)
        if other is not None and other.moment == "round" and other.rounds == done:
            return other
    return End(now, done, "updates", "update", limit)


def _used(chunk: Chunk) -> Ints:
    """Count the embeddings used up to the end of each round (n,)."""
    rounds, clients = len(chunk.steps), chunk.steps.shape[-1]
    used = np.full(rounds, clients) if chunk.used is None else np.count_nonzero(chunk.used, axis=1)
    sums: Ints = used.cumsum()
    return sums


def never_still(chunk: Chunk, before: float, rounds: int) -> None:
    """Raise ``UndecidedError`` if one of the first ``rounds`` takes no time: the event path may report no progress."""
    durations = np.diff(chunk.ends[:rounds], prepend=before)
    still = np.flatnonzero(~(durations > 0))
    if len(still):
        place = int(still[0])
        raise undecided("a round takes no time", chunk.first + place, float(chunk.ends[place]))
