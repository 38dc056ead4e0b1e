"""Search for causes: a party's latest work, and the latest message to it, at any instant."""

from __future__ import annotations

from typing import final

import numpy as np

from vflsim.results.events import Activities, Ints, Mask
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

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
        at = np.repeat(np.arange(len(message)), count)
        place = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count) + first[at]
        pairs = np.unique(np.stack([at, events.party[self._from_clients[place] % self._count]]), axis=1)
        return pairs[0], pairs[1]

    def latency_ends(self, message: Ints) -> Floats:
        """Return the end of each message's latency, or its time of sending if it had none."""
        key = self._sending(message, self.events.sent)
        place = np.minimum(np.searchsorted(self._sendings, key), max(len(self._sendings) - 1, 0))
        ends = self.events.sent[message]
        if len(self._sendings):
            found = self._sendings[place] == key
            ends = np.where(found, self.events.end[self._latencies[place]], ends)
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
        found = keys[np.searchsorted(keys, party * self._count + before, side="left") - 1]
        there = (found // self._count == party) & (found % self._count < before)
        return np.where(there, found % self._count, -1)

    def _sending(self, places: Ints, instant: Floats) -> Ints:
        """Encode sender, receiver and the instant at which a latency began as one number; -1: none began then."""
        code = np.searchsorted(self._instants, instant[places])
        began = np.append(self._instants, np.inf)[code] == instant[places]
        pairs = self.events.party[places] * 2**20 + self.events.peer[places]
        return np.where(began, pairs * (len(self._instants) + 1) + code, -1)
