"""Spans: what parties do, from when to when. Every way to play a run tells them, and each book is a fold over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

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
