"""What a party does, as a recording node notes it: no times, and no values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from vflsim.learning.execution.operations import Operation
from vflsim.world.messages import Message
from vflsim.world.wire import specs_of

How: TypeAlias = Literal["", "beside", "each", "singly"]
"""How a party waits for several messages: at once, beside something else, for each by itself, or one by one."""


@dataclass(frozen=True, slots=True)
class AwaitedActivation:
    """The party waits for its next activation."""


@dataclass(frozen=True, slots=True)
class Work:
    """The party performs an operation; it begins ``ahead`` of so many messages sent beside it, which precede it."""

    operation: Operation[Any]
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """The party waits ``factor`` times a draw of its upload delay, for a purpose; or ``seconds``, without a draw.

    ``round`` is the one that its event names.
    """

    purpose: str = ""
    factor: float = 1.0
    seconds: float | None = None
    round: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Sending:
    """The party sends a message, after its upload delay if ``delayed``. ``passed_on`` names tensors that it has got."""

    message: Message
    delayed: bool
    passed_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reception:
    """The party waits for messages of ``kind``: of all ``senders``, or of ``count`` of them; without any, of whoever.

    ``patient``: it does not wait longer than for some time. ``how`` of several in one: beside each other, or singly.
    """

    kind: str
    round: int | None
    senders: tuple[int, ...]
    count: int
    patient: bool
    how: How = ""

    @property
    def of_all(self) -> bool:
        """Whether it waits for every sender, however long that takes."""
        return self.count == max(1, len(self.senders)) and not self.patient


@dataclass(frozen=True, slots=True)
class Fork:
    """The party does several things beside each other, and waits until all have ended."""

    branches: Sequence[list[Note]]


@dataclass(frozen=True, slots=True)
class Row:
    """The party adds a row to a table of its own."""

    table: str
    fields: Mapping[str, Any]


Note: TypeAlias = AwaitedActivation | Work | Wait | Sending | Reception | Fork | Row
Notes: TypeAlias = list[Note]


def flat(notes: Sequence[Note]) -> Iterator[Note]:
    """Yield all notes, those of each branch of a fork one after the other."""
    for note in notes:
        if isinstance(note, Fork):
            for branch in note.branches:
                yield from flat(branch)
        else:
            yield note


def follows(one: Note, other: Note) -> bool:
    """Return whether ``other`` is what ``one`` is, a round later."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Work) and isinstance(other, Work):
        return _of_work(one) == _of_work(other)
    if isinstance(one, Sending) and isinstance(other, Sending):
        return _of_sending(one) == _of_sending(other) and _next(one.message.round, other.message.round)
    if isinstance(one, Reception) and isinstance(other, Reception):
        return _of_reception(one) == _of_reception(other) and _next(one.round, other.round)
    if isinstance(one, Fork) and isinstance(other, Fork):
        pairs = zip(one.branches, other.branches, strict=False)
        return len(one.branches) == len(other.branches) and all(
            len(mine) == len(theirs) and all(map(follows, mine, theirs)) for mine, theirs in pairs
        )
    if isinstance(one, Row) and isinstance(other, Row):
        return one.table == other.table
    if isinstance(one, Wait) and isinstance(other, Wait) and not _next(one.round, other.round):
        return False
    return one == other


def signature(notes: Sequence[Note]) -> tuple[object, ...]:
    """Return what a client does, whatever its number: equal for clients that do the same."""
    return tuple(map(_signature, notes))


def _signature(note: Note) -> object:
    if isinstance(note, Work):
        return _of_work(note)
    if isinstance(note, Sending):
        return _of_sending(note)
    if isinstance(note, Reception):
        return _of_reception(note)
    if isinstance(note, Fork):
        return tuple(map(signature, note.branches))
    return note if not isinstance(note, Row) else note.table


def _of_work(note: Work) -> tuple[object, ...]:
    operation = note.operation
    return operation.kind, operation.rows, operation.units, operation.seconds, operation.counts


def _of_sending(note: Sending) -> tuple[object, ...]:
    message = note.message
    specs = tuple((name, each.shape, each.dtype) for name, each in specs_of(message).items())
    receiver = message.receiver if message.sender == 0 else min(message.receiver, 1)
    return message.kind, receiver, note.delayed, specs, len(note.passed_on)


def _of_reception(note: Reception) -> tuple[object, ...]:
    return note.kind, note.senders, note.count, note.patient


def _next(round_: int | None, later: int | None) -> bool:
    """Return whether a message of a ``later`` round is one round later; those without a round are all alike."""
    if round_ is None or later is None or round_ < 0 or later < 0:
        return round_ == later
    return later == round_ + 1
