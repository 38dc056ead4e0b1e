"""The base classes of what ends a run: hooks that runs call, and facts that others ask for."""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from typing_extensions import override

from vflsim.books import Counts
from vflsim.intervals import Variation
from vflsim.learning.learners.releases import Releases
from vflsim.recurrences.chunk import Chunk, undecided
from vflsim.recurrences.stages import Ints
from vflsim.setting.resolved import BatchPlan
from vflsim.timing.floats import Floats
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.stop_rule import Row
from vflsim.world.party import RunContext

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


# --- end rule ---------------------------------------------------------------------------------------------------------


Plain = Any
"""The limit of a rule as a value that JSON can hold."""


@dataclass(frozen=True)
class RoundFacts:
    """What a rule may ask about rounds: the epochs in so many of them and used embeddings, and how they vary."""

    epochs: Callable[[int, int], float] = lambda rounds, used: 0.0
    variation: Variation | None = None

    @classmethod
    def of(cls, plan: BatchPlan, clients: int, batches: int, variation: Variation | None = None) -> Self:
        """Return those of a protocol's rounds, with so many ``clients`` and ``batches`` of an epoch."""
        return cls(lambda rounds, used: plan.epochs(rounds, used, clients, batches), variation)


UNKNOWN = RoundFacts()
"""Where nobody plays a run, and only facts of the rule itself are asked for."""


class EndRule:
    """Ends a run by the limit that a key of ``stop`` sets. A rule overrides the hooks that it needs.

    A run calls ``begin`` and ``guard`` once, then ``after_step`` or ``after_row`` by what may end it. Arrays call
    ``in_chunk`` with one stretch of rounds after the other.
    """

    key: ClassVar[str]
    """The key of ``stop``, and the reason of the runs that it ends."""
    by: ClassVar[Literal["round", "update", "step", "row", "release", "time"]] = "step"
    """What may end a run: a ``round``, an ``update``, a ``step`` (both), a ``row`` of metrics of a run that trains, a
    ``release``, or ``time``, which passes in every run."""
    on_arrays: ClassVar[bool] = False
    """Whether ``in_chunk`` knows all that ends a run without training."""
    asks_variation: ClassVar[bool] = False
    """Whether it has to know how rounds vary."""
    because: str = ""
    """Why it has ended the run, in words, where its limit does not say it."""

    def __init__(self, limit: Any, facts: RoundFacts = UNKNOWN) -> None:
        self.limit, self.facts = limit, facts

    def begin(self, run: RunContext, elapsed: Callable[[], float]) -> None:
        """Set what ends the run by itself; ``elapsed`` gives the real seconds that it has taken."""

    def guard(self, releases: Releases, end: Callable[[], None]) -> None:
        """Have a client's releases call ``end``."""

    def after_step(self, counts: Counts) -> bool:
        """Return whether the run ends with the round or update that has just been counted."""
        return False

    def after_row(self, row: Row) -> str:
        """Return the reason to end the run at a row of metrics; empty if it goes on."""
        return ""

    def in_chunk(self, stretch: Stretch, other: End | None) -> End | None:
        """Return the end of the run if it falls into a stretch, unless the ``other`` end is sooner."""
        return other

    def share(self, done: Tally) -> float:
        """Return the completed share of a run, as far as the rule tells, else 0."""
        return 0.0

    def rounds_needed(self, done: Tally, durations: Floats) -> float:
        """Estimate after how many rounds it ends a run that goes on like its first ones (n,); inf if it may not."""
        return math.inf

    def rounds_at_most(self, per_epoch: int) -> float:
        """Return the most rounds that wait for all clients, with so many batches an epoch; inf if only a run tells."""
        return math.inf

    def note(self, reason: str | None, rounds: int, seconds: float) -> str:
        """Say why it could not end a run that ended for this ``reason``; empty if there is nothing to say."""
        return ""

    def plain(self) -> Plain:
        """Return its limit as a value that JSON can hold."""
        limit = self.limit
        return limit.model_dump(mode="json", exclude_none=True) if isinstance(limit, Part) else limit

    @classmethod
    def reasons(cls, limit: Plain) -> Collection[str]:
        """Return the reasons that runs with this limit may end for."""
        return (cls.key,)

    @classmethod
    def later(cls, limit: Plain, before: Plain) -> bool:
        """Whether no run ends sooner by one limit than by another."""
        return bool(limit >= before)


class Limit(EndRule, ABC):
    """Ends a run when an amount has reached a limit."""

    limit: float

    @abstractmethod
    def done(self, tally: Tally) -> float:
        """Return the amount so far."""

    @override
    def share(self, done: Tally) -> float:
        return min(1.0, self.done(done) / self.limit)

    @override
    def rounds_needed(self, done: Tally, durations: Floats) -> float:
        amount = self.done(done) / done.rounds
        return self.limit / amount if amount > 0 else math.inf


class CountLimit(Limit):
    """Ends a run when a count has reached a limit; arrays find the first such round or update by bisection."""

    by: ClassVar[Literal["round", "update"]] = "round"
    on_arrays = True

    @abstractmethod
    def done(self, tally: Counts) -> float:
        """Return the amount so far, which never falls."""

    @override
    def after_step(self, counts: Counts) -> bool:
        return self.done(counts) >= self.limit

    @override
    def in_chunk(self, stretch: Stretch, other: End | None) -> End | None:
        return (stretch.by_round if self.by == "round" else stretch.by_update)(self.after_step, self.key, other)


def share_of(rules: Sequence[EndRule], done: Tally) -> float:
    """Return the completed share of a run: that of the nearest end; 0 where no rule tells, as before a target."""
    return max((rule.share(done) for rule in rules), default=0.0)
