"""The base classes of what ends a run: hooks that runs call, and facts that others ask for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from typing_extensions import override

from vflsim.books.counts import Counts
from vflsim.intervals.variation import Variation
from vflsim.learning.privacy.releases import Releases
from vflsim.setting.batch_plan import BatchPlan
from vflsim.stopping.stretch import End, Stretch, Tally
from vflsim.timing.floats import Floats
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.stop_rule import Row
from vflsim.world.party import RunContext

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
