"""The events of one run as NumPy columns, what caused them, and sets of times as disjoint intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.typing import NDArray

from vflsim.results.store.run import RecordedRun
from vflsim.results.store.schema import SERVER as SERVER_NAME
from vflsim.streams import SERVER
from vflsim.tables.arrow import array_of
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NOBODY = -1
"""Party number for "no party"; the server is 0, client m is m."""
DONE = OUTCOMES.index("done")


@final
@dataclass(frozen=True, eq=False)
class Activities:
    """Events in the order of the table: one array per column, all of the same length.

    ``party`` and ``peer`` are party numbers, ``kind`` indexes ``kinds`` and ``outcome`` indexes ``OUTCOMES``.
    """

    start: Floats
    end: Floats
    party: Ints
    peer: Ints
    kind: Ints
    round: Ints
    bytes: Ints
    index: Ints
    drawn: Floats
    sent: Floats
    outcome: Ints
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def is_a(self, *activities: str) -> Mask:
        """Select events of these activities (the first part of a kind: ``compute``, ``transfer``, …)."""
        wanted = np.array([activity(kind) in activities for kind in self.kinds], dtype=np.bool_)
        mask: Mask = wanted[self.kind] if len(wanted) else np.zeros(len(self), np.bool_)
        return mask

    def activities(self, places: Ints) -> tuple[str, ...]:
        """List the activities of the events at these places, in the order of their kinds."""
        codes = np.unique(self.kind[places]).tolist()
        return tuple(dict.fromkeys(activity(self.kinds[code]) for code in codes))

    def is_kind(self, *kinds: str) -> Mask:
        """Select events of exactly these kinds."""
        return np.isin(self.kind, [code for code, kind in enumerate(self.kinds) if kind in kinds])

    @property
    def done(self) -> Mask:
        """Select the events that were completed."""
        mask: Mask = self.outcome == DONE
        return mask

    def downtime(self) -> dict[int, Spans]:
        """Return when each party with outages is down."""
        outages = self.where(self.is_a("outage"))
        return downtime(outages.party, outages.start, outages.end)

    def where(self, chosen: Mask | Ints | slice) -> Activities:
        """Select by a mask, a slice, or positions in a new order."""
        columns = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return Activities(**columns, kinds=self.kinds)


_COLUMNS = tuple(field.name for field in fields(Activities) if field.name != "kinds")


def activity(kind: str) -> str:
    """Return the first part of an event's kind: ``transfer.embedding`` -> ``transfer``."""
    return kind.partition(".")[0]


def party_number(name: str) -> int:
    """Map a party's name to its number: ``server`` -> 0, ``client-3`` -> 3."""
    return 0 if name == SERVER_NAME else int(name.rpartition("-")[2])


def activities(run: RecordedRun) -> Activities:
    """Read the events of a run. Raises NotRecordedError if they were not kept, ResultsError if they are damaged."""
    return activities_in(run.table("events"))


def activities_in(events: pa.Table) -> Activities:
    """Read the events of a run from their table."""
    table = events.unify_dictionaries()
    party, parties = _coded(table.column("party"))
    peer, peers = _coded(table.column("peer"))
    kind, kinds = _coded(table.column("kind"))
    outcome, outcomes = _coded(table.column("outcome"))
    return Activities(
        start=_plain(table, "start_s"),
        end=_plain(table, "end_s"),
        party=_renamed(party, [party_number(name) for name in parties]),
        peer=_renamed(peer, [party_number(name) for name in peers]),
        kind=kind,
        round=_plain(table, "round"),
        bytes=_plain(table, "bytes"),
        index=_plain(table, "index"),
        drawn=_plain(table, "drawn_s"),
        sent=_plain(table, "sent_s"),
        outcome=_renamed(outcome, [OUTCOMES.index(name) for name in outcomes]),
        kinds=tuple(kinds),
    )


def _plain(table: pa.Table, name: str) -> Any:
    return array_of(table.column(name))


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Return codes (-1: null) and the words that they index."""
    if not column.num_chunks:
        return np.empty(0, np.int64), []
    array = column.combine_chunks()
    return array_of(array.indices, missing=-1).astype(np.int64), array.dictionary.to_pylist()


def _renamed(codes: Ints, numbers: list[int]) -> Ints:
    """Replace codes by the numbers that they index; -1 stays."""
    return np.array([*numbers, NOBODY], dtype=np.int64)[codes]


@final
@dataclass(frozen=True, eq=False)
class Spans:
    """Disjoint intervals [start, end) in seconds, ascending; none is empty and no two touch."""

    starts: Floats
    ends: Floats

    @classmethod
    def union(cls, starts: Floats, ends: Floats) -> Spans:
        """Make the union of intervals, in any order, overlapping or not."""
        lasting = ends > starts
        order = np.argsort(starts[lasting], kind="stable")
        begins, reach = starts[lasting][order], np.maximum.accumulate(ends[lasting][order])
        if not len(begins):
            return cls(begins, reach)
        opens = np.concatenate([[True], begins[1:] > reach[:-1]])
        return cls(begins[opens], reach[np.concatenate([opens[1:], [True]])])

    @classmethod
    def joined(cls, spans: Iterable[Spans]) -> Spans:
        """Make the union of several."""
        both = list(spans)
        return cls.union(np.concatenate([s.starts for s in both]), np.concatenate([s.ends for s in both]))

    def between(self, starts: Floats, ends: Floats) -> Floats:
        """Return the covered seconds from each of ``starts`` to its end."""
        return self.before(ends) - self.before(starts)

    def before(self, times: Floats) -> Floats:
        """Return the covered seconds before each of ``times`` (any shape)."""
        if not len(self.starts):
            return np.zeros_like(times)
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        covered = np.repeat(np.cumsum(self.ends - self.starts), 2)
        covered[0::2] -= self.ends - self.starts
        return np.interp(times, edges, covered)

    def minus(self, other: Spans) -> Spans:
        """Return these times without those of ``other``."""
        cuts = np.unique(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        left, right = cuts[:-1], cuts[1:]
        kept = self._cover(left) & ~other._cover(left)
        return Spans.union(left[kept], right[kept])

    def _cover(self, times: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        at = np.searchsorted(self.starts, times, side="right") - 1
        ends = np.concatenate([self.ends, [-np.inf]])  # index −1 is for times before the first interval
        covered: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = times < ends[at]
        return covered


def expanded(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return the places of ranges, ``count`` from ``first`` on, one after the other: whose each is, and which."""
    whose = np.repeat(np.arange(len(count)), count)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(count) - count, count) + first[whose]


def downtime(parties: NDArray[Any], starts: Floats, ends: Floats) -> dict[Any, Spans]:
    """Return when each party is down, given its outages among those of all, in any order."""
    masks = {party: parties == party for party in np.unique(parties).tolist()}
    return {party: Spans.union(starts[mask], ends[mask]) for party, mask in masks.items()}


_UNCOUNTED = "transfer.evaluation"
"""Evaluation runs beside the protocol, so no step waits for it."""


@final
class Causes:
    """The events of a run by party, in the order of their ends, so that causes come before effects.

    ``events`` are in this order; places are positions in it, -1 means none.
    """

    def __init__(self, events: Activities) -> None:
        self.events = events = events.where(np.argsort(events.end, kind="stable"))
        self.arrivals: Mask = events.is_a("transfer") & events.done & ~events.is_kind(_UNCOUNTED)
        self._count = max(len(events), 1)
        # Abandoned work causes nothing; lost work took its time until it was lost.
        kept = ~events.is_a("transfer", "latency") & (events.outcome != OUTCOMES.index("abandoned"))
        self._work = self._by(events.party, kept)
        self._arrivals = self._by(events.peer, self.arrivals)
        self._from_clients = self._by(events.peer, self.arrivals & (events.party != SERVER))
        self._uploads = self._by(events.party, self.arrivals & (events.peer == SERVER))
        self._latencies, self._instants = np.flatnonzero(events.is_a("latency") & events.done), np.empty(0)
        self._instants = np.unique(events.start[self._latencies])
        keys = self._sending(self._latencies, events.start)
        order = np.argsort(keys, kind="stable")
        self._sendings, self._latencies = keys[order], self._latencies[order]

    def latest_work(self, party: Ints, before: Ints) -> Ints:
        """Find each party's latest own work among the first ``before`` events."""
        return self._latest(self._work, party, before)

    def latest_arrival(self, party: Ints, before: Ints) -> Ints:
        """Find the latest message to each party among the first ``before`` events."""
        return self._latest(self._arrivals, party, before)

    def message_of(self, client: Ints, at: Floats) -> Ints:
        """Find each client's latest message that had arrived at the server by the end of the instant ``at``."""
        return self._latest(self._uploads, client, np.searchsorted(self.events.end, at, side="right"))

    def heard_clients(self, party: Ints, after: Floats, until: Floats) -> Mask:
        """Whether a client's message reached each party after ``after`` and by the end of ``until`` (seconds)."""
        low, high = (np.searchsorted(self.events.end, each, side="right") for each in (after, until))
        first, end = (np.searchsorted(self._from_clients, party * self._count + each) for each in (low, high))
        mask: Mask = end > first
        return mask

    def together(self, message: Ints) -> tuple[Ints, Ints]:
        """Return (position in ``message``, sender) of clients whose messages arrived with one of these; ascending."""
        events = self.events
        instant = np.searchsorted(events.end, events.end[message], side="left")
        keys = events.peer[message] * self._count
        first = np.searchsorted(self._from_clients, keys + instant)
        count = np.searchsorted(self._from_clients, keys + message, side="right") - first
        at, place = expanded(first, count)
        pairs = np.unique(np.stack([at, events.party[self._from_clients[place] % self._count]]), axis=1)
        return pairs[0], pairs[1]

    def latency_ends(self, message: Ints) -> Floats:
        """Return the end of each message's latency, or its time of sending if it had none."""
        key = self._sending(message, self.events.sent)
        place = np.minimum(np.searchsorted(self._sendings, key), max(len(self._sendings) - 1, 0))
        ends = self.events.sent[message]
        if len(self._sendings):
            has_latency = self._sendings[place] == key
            ends = np.where(has_latency, self.events.end[self._latencies[place]], ends)
        return ends

    def server_work_before(self, ready: Floats, steps: Ints, start: Floats) -> Floats:
        """Return the begin of the server's work that ended at ``ready``, if it lies in the round; else ``ready``."""
        before = np.minimum(np.searchsorted(self.events.end, ready, side="right"), steps)
        work = self.latest_work(np.full(len(ready), SERVER), before)
        begun, ended = self.events.start[work], self.events.end[work]
        return np.where((work >= 0) & (ended == ready) & (begun >= start) & (begun < ready), begun, ready)

    def _by(self, party: Ints, chosen: Mask) -> Ints:
        """Return ``party · events + place`` of the chosen events, ascending."""
        places = np.flatnonzero(chosen)
        keys: Ints = np.sort(party[places] * self._count + places)
        return keys

    def _latest(self, keys: Ints, party: Ints, before: Ints) -> Ints:
        if not len(keys):
            return np.full(len(party), -1, np.int64)
        latest = keys[np.searchsorted(keys, party * self._count + before, side="left") - 1]
        there = (latest // self._count == party) & (latest % self._count < before)
        return np.where(there, latest % self._count, -1)

    def _sending(self, places: Ints, instant: Floats) -> Ints:
        """Encode sender, receiver and the instant at which a latency began as one number; -1: none began then."""
        code = np.searchsorted(self._instants, instant[places])
        began = np.append(self._instants, np.inf)[code] == instant[places]
        pairs = self.events.party[places] * 2**20 + self.events.peer[places]
        return np.where(began, pairs * (len(self._instants) + 1) + code, -1)
