"""Data of consecutive rounds, the interface between recurrences and book-keeping; and obstacles to recurrences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.books import ArrayFields
from vflsim.errors import RunError
from vflsim.learning.learners.staleness import NO_AGES, Ages
from vflsim.recurrences.stages import Ints
from vflsim.timing.floats import Floats

Bools = NDArray[np.bool_]


Direction: TypeAlias = Literal["up", "down", "peer"]
"""To the server, from it, or between clients."""


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What the table of events tells of spans (n, m) besides, each array broadcast to it; and their place among all.

    ``kinds`` are of the columns, or one of all. ``rounds`` (n, 1) and ``peers`` (m,) are what events name, -1 for no
    round; ``numbers`` how often the party had begun such a thing, ``drawn`` what it drew (s). ``some`` (m,) marks those
    that leave events. They begin in events ``begun`` of the world and end in ``ended``, within these by ``steps`` and
    ``places``; of messages, ``sent`` is the time (s), and ``moving`` the event in which they begin to move.
    """

    kinds: Sequence[str]
    rounds: Ints
    peers: Ints
    numbers: Ints
    drawn: Floats | float
    steps: Ints
    begun: Ints
    ended: Ints
    places: Ints | None = None
    some: Bools | None = None
    counts: Literal["round", "update"] | None = None
    sent: Floats | None = None
    moving: Ints | None = None


@dataclass(frozen=True, slots=True)
class Happenings(ArrayFields):
    """Events (n,) of the world by ``numbers``, at ``times``.

    Each is scheduled in the event that is its cause, by ``steps`` and ``places`` of what is done in it. ``collects``: 1
    for one in which a party gets its messages as an instant ends, when all that it awaits is there; 2 if it awaits
    each for itself.
    """

    numbers: Ints
    times: Floats
    causes: Ints
    steps: Ints
    places: Ints
    collects: Ints


@dataclass(frozen=True, slots=True)
class Joins(ArrayFields):
    """Collections (n,), and for each an event of the same instant that it awaits."""

    collections: Ints
    causes: Ints


@dataclass(frozen=True, slots=True)
class EventCourse:
    """The events of some rounds; none of those of later rounds is sooner than ``horizon`` (s)."""

    happenings: Happenings
    joins: Joins
    horizon: float


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers of n rounds in one direction, each array of shape (n, m), or broadcast to it.

    A transfer lasts from ``began`` to ``ends`` (inf: no transfer) and moves ``counted`` of its ``sizes`` bytes, fewer
    if it is aborted. ``rates`` are in bit/s; where ``profiles`` has amounts over time, they are used instead. With
    ``copies`` each entry stands for so many transfers at the same times, of ``sizes`` bytes each, which move
    ``counted`` together. ``places`` (n, m) are those of the clients whose messages they are; without them column k is
    that of the client at place k. ``facts`` is what events tell, where they are recorded.
    """

    direction: Direction
    began: Floats
    ends: Floats
    sizes: Ints
    counted: Ints
    rates: Floats
    copies: Ints | None = None
    profiles: NDArray[np.object_] | None = None
    places: Ints | None = None
    facts: EventFacts | None = None

    def only(self, chosen: Bools | slice) -> Moves:
        """Select transfers by rounds; by marks, as flat arrays. Places, and what events tell, are left out."""
        shape = self.ends.shape

        def some(each: Any) -> Any:
            return None if each is None else (each if each.shape == shape else np.broadcast_to(each, shape))[chosen]

        return Moves(self.direction, *(some(getattr(self, name)) for name in _NUMBERS))

    @classmethod
    def joined(cls, some: Sequence[Moves]) -> Moves:
        """Join flat arrays of transfers of one direction."""

        def column(name: str) -> Any:
            values = [getattr(each, name) for each in some]
            if all(value is None for value in values):
                return None
            nothing = (np.full(each.ends.shape, None, object) for each in some)
            return np.concatenate([none if each is None else each for each, none in zip(values, nothing, strict=True)])

        return cls(some[0].direction, *map(column, _NUMBERS))

    def through(self, now: Floats | float) -> Ints:
        """Return the whole bytes that each transfer (of several at once: one) has moved until a later ``now``."""
        through = bytes_moved(self.sizes, self.began, self.rates, now)
        if self.profiles is not None:
            ends = np.broadcast_to(now, through.shape)
            for place in np.flatnonzero(self.profiles != None).tolist():  # noqa: E711  # element by element
                bits = self.profiles[place].amount(float(self.began[place]), float(ends[place]))
                through[place] = int(min(int(self.sizes[place]), bits / 8))
        return through


_NUMBERS = ("began", "ends", "sizes", "counted", "rates", "copies", "profiles")


def bytes_moved(sizes: Ints, began: Floats, rates: Floats, now: Floats | float) -> Ints:
    """Return the whole bytes of ``sizes`` that have moved until a later ``now``, at ``rates`` in bit/s."""
    moved: Ints = np.minimum(sizes, (now - began) * rates / 8).astype(np.int64)
    return moved


State: TypeAlias = Literal["compute", "radio", "latency", "activation", "sleep"]
"""What a party does, or waits for, in a span."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Times in which parties compute, have their radio on in upload delays, or wait for something else.

    Of messages, ``Moves`` tell as much.

    From ``began`` to ``ends``, each (n, m); of the clients at ``places``, broadcast to it, -1 for the server. Of
    computations, row k is of round k of the chunk, or ``after`` its end as its consequences; ``flops`` are their
    operations, and ``seconds`` how long they take, broadcast to it: None where no operation has an energy. ``facts`` is
    what events tell, where they are recorded.
    """

    state: State
    began: Floats
    ends: Floats
    places: Ints
    flops: Floats | None = None
    seconds: Floats | None = None
    after: bool = False
    facts: EventFacts | None = None


AT_SERVER: Ints = np.array([-1])
"""The place of the server in ``Stretches``."""
NOBODY: Ints = np.array([-2])
"""In the place of a peer: none."""


@dataclass(frozen=True, slots=True)
class AgeSums:
    """Ages of some rounds: of the rows that they used, and of clients."""

    rows: Ages = NO_AGES
    clients: Ages = NO_AGES

    def __add__(self, other: AgeSums) -> AgeSums:
        """Return the sums over both."""
        return AgeSums(self.rows.plus(other.rows), self.clients.plus(other.clients))


@dataclass(frozen=True, slots=True)
class RoundAges:
    """Ages by round: sum, number and maximum (n, 3) over rows, and over clients."""

    rows: Ints
    clients: Ints

    def __call__(self, start: int, stop: int) -> AgeSums:
        """Return the ages of rounds ``start`` up to ``stop``."""
        return AgeSums(
            *(
                Ages(int(each[:, 0].sum()), int(each[:, 1].sum()), int(each[:, 2].max(initial=0)))
                for each in (self.rows[start:stop], self.clients[start:stop])
            )
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rounds ``first`` up to ``first + n``.

    ``ends`` (n,) are the ends of the server's steps, ``waited`` (n,) their starts, or the ends of the server's waits
    before other work. ``used`` (n, M): whose embeddings a step used (None: everyone's); ``all_fresh``: those of all
    clients are part of what it used. ``steps`` (n, M), or (n, steps, M): when clients have stepped in the course of the
    round if ``steps_during``, otherwise with what its end has sent them (inf: never).
    Transfers are sent ``during`` a round, ``after`` its end as its consequences, or ``before`` the first one.
    ``ages`` returns those of rounds of the chunk from one up to another; each call begins where the last stopped.
    ``ordered``: all consequences of a round precede the end of the next. ``spans`` tell all that parties do besides
    in, after and before these rounds, if the world is ``metered``; None if the recurrence does not tell it. ``course``
    has the events of the world in which they do, if the world is ``recorded``.
    """

    first: int
    ends: Floats
    waited: Floats
    used: Bools | None
    steps: Floats
    during: tuple[Moves, ...]
    after: tuple[Moves, ...]
    ages: Callable[[int, int], AgeSums]
    ordered: bool = False
    before: tuple[Moves, ...] = ()
    steps_during: bool = False
    all_fresh: bool = False
    spans: tuple[Stretches, ...] | None = None
    course: EventCourse | None = None


class Recurrence(Protocol):
    """A round-based protocol: every round follows from the previous one.

    Example::

        class Twice:
            def __init__(self, inner: Recurrence) -> None:
                self.inner = inner

            def advance(self, first: int, count: int) -> Any:
                return self.inner.advance(first, count)
    """

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on: whole blocks, or a part of one.

        Raises ``UndecidedError``.
        """


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A value of ``key`` for which a protocol's recurrence does not hold. It holds for ``allowed`` values.

    Example::

        Obstacle(key="patience", what="a deadline", allowed="none").key  # 'patience'
    """

    key: str
    what: str
    allowed: str


class UndecidedError(RunError):
    """Events fall on the same instant, and the run depends on their order, which only the event queue determines.

    This is rare for continuous delays. The event path executes such a run.
    """


def undecided(what: str, round_: int, now: float) -> UndecidedError:
    """Make the error for ``what`` happening in a round at a time (seconds)."""
    return UndecidedError(
        f"{what}: only the event path can decide the order",
        where=f"round {round_} at {now:.6g} s",
        remedy="leave out --path vectorised",
    )
