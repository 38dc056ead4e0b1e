"""Where a run of arrays ends: the first round, update or time that a rule names in a stretch of rounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from vflsim.books.counts import Counts
from vflsim.recurrences.chunk import Chunk
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats

Moment: TypeAlias = Literal["round", "time", "update"]


@dataclass(eq=False)
class Tally(Counts):
    """What a run has done so far: its counts, its virtual seconds, and the real ones that it has taken."""

    time_s: float = 0.0
    wall_clock_s: float = 0.0


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


@dataclass(frozen=True)
class Stretch:
    """A chunk of rounds, and what the run had done before them.

    ``used`` embeddings, the ``ended`` time of the round before, ``updates`` before the first round began; ``waiting``
    are the times of later client steps from earlier rounds.
    """

    chunk: Chunk
    used: int
    ended: float
    updates: int
    waiting: Floats

    @cached_property
    def used_by(self) -> Ints:
        """The embeddings used up to the end of each round (n,)."""
        used, (rounds, clients) = self.chunk.used, (len(self.chunk.steps), self.chunk.steps.shape[-1])
        each = np.full(rounds, clients) if used is None else np.count_nonzero(used, axis=1)
        sums: Ints = self.used + each.cumsum()
        return sums

    @property
    def durations(self) -> Floats:
        """The time from each round's end to the next (n,)."""
        return np.diff(self.chunk.ends, prepend=self.ended)

    def by_round(self, met: Callable[[Counts], bool], reason: str, other: End | None) -> End | None:
        """Return the end by the first round with which ``met`` holds, if it precedes the ``other`` end."""
        first = self.chunk.first + 1
        after = bisect_left(
            range(len(self.chunk.ends)),
            True,
            key=lambda place: met(Counts(first + place, self.updates, int(self.used_by[place]))),
        )
        return self.after_rounds(after + 1, reason, other)

    def after_rounds(self, rounds: int, reason: str, other: End | None) -> End | None:
        """Return the end by a round of the stretch, the first being 1, if it precedes the ``other`` end."""
        if rounds > len(self.chunk.ends) or (other is not None and other.rounds <= rounds):
            return other
        return End(float(self.chunk.ends[rounds - 1]), rounds, reason, "round")

    def by_time(self, seconds: float, reason: str, other: End | None) -> End | None:
        """Return the end at a time of the run, after all of its instant, if the ``other`` end has more rounds."""
        rounds = int(np.searchsorted(self.chunk.ends, seconds, side="right"))
        if rounds >= (len(self.chunk.ends) if other is None else other.rounds):
            return other
        return End(seconds, rounds, reason, "time")

    def by_update(self, met: Callable[[Counts], bool], reason: str, other: End | None) -> End | None:
        """Return the end by the first client step with which ``met`` holds, if it precedes the ``other`` end.

        Raises ``UndecidedError``.
        """
        chunk = self.chunk
        before = chunk.ends[-1] if other is None else other.time
        steps = np.concatenate([self.waiting, chunk.steps[chunk.steps <= before]])
        steps = steps[steps <= before]
        place = bisect_left(range(len(steps)), True, key=lambda place: met(Counts(0, self.updates + place + 1)))
        if place == len(steps):
            return other
        now = float(np.partition(steps, place)[place])
        if now == chunk.ends[-1] and other is None:  # the next chunk decides
            return other
        done = int(np.searchsorted(chunk.ends, now, side="right"))
        if done and chunk.ends[done - 1] == now:
            # Steps with the gradient of this round follow it; the order of earlier ones is undecided.
            sooner = chunk.steps[: done if chunk.steps_during else done - 1]
            earlier = np.count_nonzero(self.waiting == now) + np.count_nonzero(sooner == now)
            if earlier:
                raise undecided("a client's step ends with a server's step", chunk.first + done - 1, now)
            if other is not None and other.moment == "round" and other.rounds == done:
                return other
        return End(now, done, reason, "update", self.updates + place + 1)
