"""Availability of clients: alternating, one failure with or without repair, or given times.

Availability is a profile: 1 while the client is up, 0 while it is down, a function of (seed, party, time) alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.timing.delays import AnyDelay
from vflsim.timing.profile import Flat, Interrupted, Pieces, Profile, StepProfile, tried_profile
from vflsim.timing.readers import columns_of
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import Part, Seconds, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import SHORTEST, TIME, Period, Quantity
from vflsim.vocabulary.trial import SEEDS_AND_PARTIES, Trial, is_any, is_number

MOST_TURNS = 10_000_000
"""Periods after which a run fails: the client's activities are too long for such short outages."""


@final
class Always(Part):
    """The client is always up.

    Example: ``{kind: always}``
    """

    kind: Literal["always"] = "always"

    def profile(self, seed: int, party: int) -> None:
        """Return None, because the client is always up."""
        return None


class Availability(Part, ABC):
    """When a client is up: a profile that is 1 while it is up, 0 while it is down, of (seed, party, time) alone.

    Example of a class of your own, for devices that are away every night. A scenario names it by
    ``availability: {kind: module, path: "mine:Nightly", away: 8 h}``::

        class Nightly(Availability):
            kind: Literal["nightly"] = "nightly"
            away: PositiveSeconds
            interrupted: Interrupted = "resumed"

            def profile(self, seed: int, party: int) -> Profile:
                dusk = generator(seed, party, "availability").uniform(1.0, 86400.0 - self.away)
                return StepProfile([0.0, dusk, dusk + self.away], [1.0, 0.0, 1.0], period=86400.0)
    """

    kind: str
    """The name of this kind, as scenarios write it."""

    if TYPE_CHECKING:  # each kind chooses its place among its keys

        @property
        def interrupted(self) -> Interrupted:
            """Whether work and messages under way are ``lost`` when it goes down, or ``resumed`` afterwards."""

    @abstractmethod
    def profile(self, seed: int, party: int) -> Profile:
        """Return 1 while the party is up, 0 while it is down. Random times come from ``Sampler`` or ``generator``."""

    @property
    def recurs(self) -> bool:
        """Whether outages recur for ever. Such outages do not keep a run alive in which nothing else happens."""
        return True

    @property
    def cycle_s(self) -> float:
        """The mean time (s) from one outage to the next; 0 where they do not recur, or where it is not known."""
        return 0.0

    @property
    def regular(self) -> bool:
        """Whether every cycle lasts equally long."""
        return True

    def _contract(self, trial: Trial) -> None:
        remedy = 'add `interrupted: Interrupted` to the class, or `interrupted: Interrupted = "lost"`'
        kinds, name = get_args(Interrupted), f"{trial.name}.profile"
        trial.fact("interrupted", lambda value: value in kinds, ", ".join(kinds), remedy)
        for key in ("recurs", "regular"):
            trial.fact(key, is_any(bool), "True or False")
        trial.fact("cycle_s", is_number(least=0), "seconds, finite and at least 0")
        for seed, party in SEEDS_AND_PARTIES:
            where, allowed = f" for seed {seed} and party {party}", "a Profile, such as StepProfile(times, values)"
            pieces = tried_profile(trial, partial(self.profile, seed, party), (Profile,), allowed, where)
            wrong = [value for _, value, _ in pieces if value not in (0, 1)]
            what = f"{name} has the value {wrong[0]!r}" if wrong else ""
            trial.must(not wrong, what, "1 while the client is up, 0 while it is down", "profile")
            up = self.profile(seed, party).finish(0.0, 0.0) < math.inf
            trial.must(up, f"{name} is 0 for ever", "some time up", "profile")


@final
class Alternating(Availability):
    """Alternately up and down, with independent periods (an alternating renewal process): failures with repair.

    Example: ``{kind: alternating, up: {kind: exponential, mean: 60 s}, down: 5 s, starts: down, interrupted:
    lost}``
    """

    kind: Literal["alternating"] = "alternating"
    up: AnyDelay
    """How long it stays up."""
    down: AnyDelay
    """How long it stays down."""
    starts: Literal["up", "down"] = "up"
    """How it begins."""
    interrupted: Interrupted
    """Whether work and messages under way are ``lost`` when it goes down, or ``resumed`` afterwards."""

    @property
    @override
    def cycle_s(self) -> float:
        return self.up.expectation() + self.down.expectation()

    @property
    @override
    def regular(self) -> bool:
        return self.up.variance() == self.down.variance() == 0

    @model_validator(mode="after")
    def _time_must_pass(self) -> Self:
        up, down = self.up.expectation(), self.down.expectation()
        if up == 0:
            raise ValueError("up takes no time: the client would never be there; allowed: a mean above 0 s")
        if up + down < SHORTEST:
            raise ValueError(f"up and down last {up + down:g} s together on average; allowed: at least {SHORTEST:g} s")
        return self

    @override
    def profile(self, seed: int, party: int) -> Profile:
        up = Sampler(self.up, seed, party, "availability.up")
        down = Sampler(self.down, seed, party, "availability.down")
        return Turns(up, down, starts_up=self.starts == "up")


@final
class Failure(Availability):
    """One failure, with or without repair.

    Example: ``{kind: failure, at: {kind: exponential, mean: 1 h}, repair: never, interrupted: lost}``
    """

    kind: Literal["failure"] = "failure"
    at: AnyDelay
    """How long after the start it fails."""
    repair: Annotated[AnyDelay | None, Shorthand(lambda value: None if value == "never" else value, {"const": "never"})]
    """How long the repair takes, or ``never``."""
    interrupted: Interrupted
    """Whether work and messages under way are ``lost`` when it goes down, or ``resumed`` afterwards."""

    @property
    @override
    def recurs(self) -> bool:
        return False

    @override
    def profile(self, seed: int, party: int) -> Profile:
        at, end = Sampler(self.at, seed, party, "availability.at").draw(0), math.inf
        if self.repair is not None:
            end = at + Sampler(self.repair, seed, party, "availability.repair").draw(0, at)
        return _down_in([(at, end)])


Outage: TypeAlias = tuple[Seconds, Annotated[float, Quantity(TIME, at_least=0, unlimited=True)]]
"""The beginning and the end of an outage of a client (``inf``: it never ends)."""


@final
class Intervals(Availability):
    """Down at given times, in the scenario or in a file of two columns, from and to (CSV, NPY).

    Examples: ``{kind: intervals, down: [[20 s, 25 s], [40 s, 45 s]], period: 60 s, interrupted: resumed}``,
    ``{kind: intervals, file: outages.csv, interrupted: lost}``
    """

    kind: Literal["intervals"] = "intervals"
    down: Annotated[tuple[Outage, ...], Field(min_length=1)] | None = None
    """``[[from, to], …]`` in seconds since the start, ascending; ``inf``: for good."""
    file: str | None = None
    """A file of such times, instead."""
    period: Period | None = None
    """The times repeat after this long."""
    interrupted: Interrupted
    """Whether work and messages under way are ``lost`` when it goes down, or ``resumed`` afterwards."""

    _outages: list[tuple[float, float]] = PrivateAttr()

    @model_validator(mode="after")
    def _read(self) -> Self:
        if (self.down is None) == (self.file is None):
            raise ValueError("intervals need their times; allowed: exactly one of down and file")
        table = np.array(self.down) if self.file is None else columns_of(self.file, ("from", "to"))
        outages = [(float(start), float(end)) for start, end in table]
        where = self.file or "down"
        for number, (start, end) in enumerate(outages, start=1):
            if not 0 <= start < end:
                raise ValueError(f"{where}: [{start:g}, {end:g}] (number {number}); allowed: 0 ≤ from < to")
        for (_, end), (start, _) in pairwise(outages):
            if start < end:
                raise ValueError(
                    f"{where}: down from {start:g} s before {end:g} s is over; allowed: one after the other"
                )
        if self.period is not None and outages[-1][1] > self.period:
            raise ValueError(
                f"a period of {self.period:g} s ends before the last outage, {outages[-1][1]:g} s; allowed: no earlier"
            )
        self._outages = outages
        if not _down_in(outages, self.period).next_change(0.0) < math.inf and outages[0][0] == 0:
            raise ValueError(f"{where}: the client would never be there; allowed: some time up")
        return self

    @property
    @override
    def recurs(self) -> bool:
        return self.period is not None

    @property
    @override
    def cycle_s(self) -> float:
        return self.period or 0.0

    @override
    def profile(self, seed: int, party: int) -> Profile:
        return _down_in(self._outages, self.period)


@final
class Turns(Pieces):
    """A profile that is alternately 1 and 0, for periods that it draws when they are needed."""

    def __init__(self, up: Sampler, down: Sampler, *, starts_up: bool) -> None:
        self._samplers = (up, down) if starts_up else (down, up)
        self._values = (1.0, 0.0) if starts_up else (0.0, 1.0)
        self._changes = [0.0]  # piece k begins at changes[k]

    @override
    def piece(self, t: float) -> tuple[float, float]:
        changes = self._changes
        while changes[-1] <= t:
            last, turn = changes[-1], len(changes) - 1
            if turn == MOST_TURNS:
                raise RunError(
                    f"a client has been up and down {turn:,} times by {last:g} s, and is still not done by {t:g} s",
                    allowed="activities that last as long as a few outages",
                    remedy="lengthen its up or down, or shorten what it does",
                )
            changes.append(last + self._samplers[turn % 2].draw(turn // 2, last))
        place = bisect_right(changes, t)  # skips periods of length 0
        return self._values[(place - 1) % 2], changes[place]


def _down_in(outages: Iterable[tuple[float, float]], period: float | None = None) -> Profile:
    """A profile that is 0 in the outages, which are in order, and 1 between them."""
    steps = {0.0: 1.0}
    for start, end in outages:
        if start < end:
            steps[start] = 0.0
        if start < end < (period or math.inf):
            steps[end] = 1.0
    if len(steps) == 1:
        return Flat(steps[0.0])
    return StepProfile(list(steps), list(steps.values()), period)


AvailabilityKind: TypeAlias = Always | Alternating | Failure | Intervals
AVAILABILITIES: tuple[type[Part], ...] = get_args(AvailabilityKind)
"""Every kind of availability."""

AnyAvailability = Annotated[
    AvailabilityKind,
    Field(discriminator="kind"),
    OrModule(Availability),
    Shorthand(kind_from_text, {"const": "always"}),
]
"""A field that takes any kind of availability, or ``always``."""
