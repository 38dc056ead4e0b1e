"""What runs are worth, as folds over one stream of spans: whoever plays a run, events, arrays or a live one."""

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vflsim.streams import SERVER
from vflsim.timing.floats import Floats

DOWN, COMPUTE, RADIO = range(3)
"""What a party does in a span: it is down, it computes, or its radio is on."""
FLOPS = "flops"
"""The kind of a row that notes operations in place of bytes among events: no event, and in no table."""
_STATES = {"compute": COMPUTE, FLOPS: COMPUTE, "outage": DOWN, "latency": None, "activation": None}
"""By the families of events; those of all others, transfers and upload delays of any name, have the radio on."""


class ArrayFields:
    """Arrays (n,) of one length, the fields of a dataclass."""

    __slots__ = ()

    @classmethod
    def joined(cls, some: Sequence[Self]) -> Self:
        """Join some."""
        return cls(*(np.concatenate([getattr(each, field.name) for each in some]) for field in _fields(cls)))

    def only(self, chosen: NDArray[Any]) -> Self:
        """Select some by marks or places."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in _fields(type(self))))


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


@dataclass(frozen=True, slots=True)
class Bounds(ArrayFields):
    """The beginnings and ends (n,) of spans, in any order, so that a span that goes on is half told.

    ``signs`` are 1 where a span begins, and −1 where it ends. ``amounts`` are bytes (of a radio) or floating-point
    operations, which count as the span ends. ``slots`` are places among the moments that somebody asks for: the first
    that a bound precedes.
    """

    times: Floats
    signs: NDArray[np.integer[Any]]
    states: NDArray[np.integer[Any]]
    parties: NDArray[np.integer[Any]]
    amounts: NDArray[np.integer[Any]]
    slots: NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class PartySpans(ArrayFields):
    """Spans (n,): ``states`` of ``parties``, when they ``began`` and when each ``ends``, and what counts as it ends."""

    states: NDArray[np.integer[Any]]
    parties: NDArray[np.integer[Any]]
    began: Floats
    ends: Floats
    amounts: NDArray[np.integer[Any]]

    def bounds(self, first: NDArray[np.integer[Any]], last: NDArray[np.integer[Any]]) -> Bounds:
        """Return their beginnings, whose slots are ``first``, and their ends, whose slots are ``last``."""
        signs = np.repeat(np.array([1, -1], np.int8), len(self.began))
        states, parties = (np.concatenate([each, each]) for each in (self.states, self.parties))
        amounts = np.concatenate([np.zeros_like(self.amounts), self.amounts])
        times, slots = np.concatenate([self.began, self.ends]), np.concatenate([first, last])
        return Bounds(times, signs, states, parties, amounts, slots)


def spans_of(events: Mapping[str, NDArray[Any]] | NDArray[np.void], kinds: Sequence[str]) -> PartySpans:
    """Return the spans that events tell: of a message two, its sender's and its receiver's.

    The columns are those of ``world.record.Events``: ``party`` and ``peer`` are numbers, ``kind`` places in ``kinds``.
    """
    families = [kind.partition(".")[0] for kind in kinds]
    states = np.array([_STATES.get(family, RADIO) for family in families], float)[events["kind"]]  # None: NaN
    sent = np.array([family == "transfer" for family in families], bool)[events["kind"]]
    actors, peers = np.flatnonzero(states == states), np.flatnonzero(sent)
    rows = np.concatenate([actors, peers])
    parties = np.concatenate([events["party"][actors], events["peer"][peers]])
    began, ends, amounts = (events[name][rows] for name in ("start_s", "end_s", "bytes"))
    return PartySpans(states[rows].astype(np.int8), parties, began, ends, amounts)


BYTES = ("bytes_up", "bytes_down", "bytes_peer")
"""Counts of bytes: of messages from clients to the server, from the server to clients, and between clients."""


OF_RUN = {"rounds": "round", "updates": "updates"}
"""What ``run.json`` counts besides events: each of the ``Counts``, and the column of metrics that has it."""


def way_of(sender: Any, receiver: Any) -> Any:
    """Return the place in ``BYTES`` of what counts a message, or each of many."""
    return (receiver != SERVER) * (1 + (sender != SERVER))


@dataclass(eq=False)
class Counts:
    """What a run has counted so far. Bytes count when their message ends, those of one cut short as far as it got."""

    rounds: int = 0
    """Steps of the server."""
    updates: int = 0
    """Steps of all clients."""
    embeddings_used: int = 0
    """By the server, one for each client and step."""
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_peer: int = 0
    skipped: int = 0
    """Rounds that were given up without a server step."""

    def add_bytes(self, sender: int, receiver: int, amount: int) -> None:
        """Count the bytes of a message."""
        name = BYTES[way_of(sender, receiver)]
        setattr(self, name, getattr(self, name) + amount)

    def counted(self) -> dict[str, Any]:
        """Return the counts by name."""
        return {count.name: getattr(self, count.name) for count in fields(Counts)}

    def of_run(self, events: int) -> dict[str, int]:
        """Return the counts of ``run.json``, given those of recorded events."""
        return {**{name: getattr(self, name) for name in OF_RUN}, "events": events}


def ended_until(
    times: Floats, ends: Floats, amounts: NDArray[np.integer[Any]] | int = 1, side: Literal["left", "right"] = "right"
) -> NDArray[np.int64]:
    """Return what has ended until each of many times (n,), in any order, what ends at the very time included.

    The ``left`` side leaves that out: within an instant, it may follow.
    """
    order = np.argsort(ends, kind="stable")
    sums = np.concatenate([[0], np.broadcast_to(amounts, ends.shape)[order].cumsum()])
    totals: NDArray[np.int64] = sums[np.searchsorted(ends[order], times, side)]
    return totals


class _Ending(Protocol):
    """Spans of any shape that count an amount as they end (inf: never). Selected by marks they are flat."""

    @property
    def ends(self) -> Floats: ...
    @property
    def counted(self) -> NDArray[np.integer[Any]]: ...
    def only(self, chosen: NDArray[np.bool_]) -> Self: ...
    @classmethod
    def joined(cls, some: Sequence[Self]) -> Self: ...


_Spans = TypeVar("_Spans", bound=_Ending)


@dataclass(frozen=True, slots=True)
class StepEnds(ArrayFields):
    """Client steps, one each, of any shape."""

    ends: Floats

    @property
    def counted(self) -> NDArray[np.integer[Any]]:
        """One for each step."""
        return np.broadcast_to(1, self.ends.shape)


class EndedAmounts(Generic[_Spans]):
    """Adds up what spans count until times that never fall, while more and more spans are told.

    At every time, ``total`` is what ``ended_until`` gives for all spans at once.
    """

    def __init__(self) -> None:
        self.total = 0
        self.waiting: list[_Spans] = []
        """Spans that end later."""

    def expect(self, spans: _Spans) -> None:
        """Add spans, none of which has ended by the latest time."""
        self.waiting.append(spans)

    def until(self, now: float) -> int:
        """Count what ends up to and including ``now``; return the total."""
        later = []
        for spans in self.waiting:
            due = spans.ends <= now
            if due.all():
                self.total += int(spans.counted.sum())
            else:
                self.total += int(spans.counted[due].sum())
                later.append(spans.only(~due & (spans.ends < np.inf)))
        later = [spans for spans in later if spans.ends.size]
        self.waiting = [type(later[0]).joined(later)] if len(later) > _PIECES else later
        return self.total

    def ending(self, now: float) -> int:
        """Count the spans that end at ``now`` and have not been counted."""
        return sum(int(np.count_nonzero(spans.ends == now)) for spans in self.waiting)


_PIECES = 4
"""Most arrays of spans that are looked through one by one."""
