"""The activities of a run as measurements, with what a party took between its activities and what messages took.

A live run records when its parties' activities began and ended, when the server got a message, and when it sent one;
when a client got it is not recorded. So:

- a computation that follows another activity of its party, or at the server an arrival, lasts from that one's end;
- a message to the server is under way from the end of what its client did before it, less the upload delay, until the
  server has it;
- a message to a client is under way from the end of what the server did before it (a step, or an arrival) until the
  client begins its next computation, if it had nothing else to do.

Times that an evaluation lies in are left out. So a message's time includes writing and reading it, and a computation's
the time until it begins. A simulated run records all of this as it stands.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from vflsim.results.events import Activities, activities
from vflsim.results.read import StoredRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.timing.measured.activity_log import COMPUTE, TRANSFER, UPLOAD, ActivityLog, LogBuilder

FlopsByIndex = Mapping[tuple[int, str], Sequence[float]]
"""FLOPs of the n-th operation of a party (0: the server) of a kind."""


def observed_log(run: StoredRun, flops: FlopsByIndex, after: float = 0.0) -> ActivityLog:
    """Return the completed activities of a run that begin ``after`` seconds or later.

    Raises NotRecordedError if its events were not kept, ResultsError if they are damaged.

    Example: ``observed_log(results.runs[0], {}).uplinks[1].seconds``
    """
    events = activities(run)
    events = events.where(events.done)
    builder = LogBuilder(str(run.folder))
    if run.info.path == "live":
        evaluated = np.sort(run.table("metrics", ("time_s",))["time_s"].to_numpy())
        reading: _Simulated = _Live(events, flops, after, evaluated)
    else:
        reading = _Simulated(events, flops, after)
    reading.put(builder)
    return builder.log(reading.notes)


class _Simulated:
    """A run whose events say when each message was sent and when it arrived."""

    def __init__(self, events: Activities, flops: FlopsByIndex, after: float) -> None:
        self.events, self._flops, self._after = events, flops, after
        self.notes: list[str] = []
        self.computations = np.flatnonzero(events.is_a(COMPUTE))
        self.uploads = np.flatnonzero(events.is_a(UPLOAD))
        self.transfers = np.flatnonzero(events.is_a(TRANSFER))

    def put(self, builder: LogBuilder) -> None:
        """Add every activity to the log."""
        between = 0
        for place in self.computations.tolist():
            self._operation(builder, place)
        delayed = self.events.drawn[self.uploads] > 0
        for place in self.uploads[delayed].tolist() if delayed.any() else []:
            if self._counts(place):
                builder.upload_delay(int(self.events.party[place]), float(self.events.drawn[place]))
        for place in self.transfers.tolist():
            if SERVER not in (self.events.party[place], self.events.peer[place]):
                between += 1
            elif self._counts(place):
                self._message(builder, place)
        if between:
            self.notes.append(f"{between:,} messages between clients are left out")

    def _counts(self, place: int) -> bool:
        return bool(self.events.start[place] >= self._after)

    def _operation(self, builder: LogBuilder, place: int) -> None:
        if self._counts(place):
            seconds = float(self.events.end[place] - self.events.start[place])
            self._add(builder, place, seconds)

    def _add(self, builder: LogBuilder, place: int, seconds: float) -> None:
        """Add a computation that takes ``seconds``."""
        events = self.events
        party, kind = int(events.party[place]), events.kinds[events.kind[place]].partition(".")[2]
        counted, index = self._flops.get((party, kind), ()), int(events.index[place])
        flops = counted[index] if index < len(counted) else math.nan
        builder.operation(party, kind, seconds, flops)

    def _message(self, builder: LogBuilder, place: int) -> None:
        events = self.events
        seconds = float(events.end[place] - events.sent[place])
        builder.message(int(events.party[place]), int(events.peer[place]), seconds, int(events.bytes[place]))


class _Live(_Simulated):
    """A live run."""

    def __init__(self, events: Activities, flops: FlopsByIndex, after: float, evaluated: Floats) -> None:
        super().__init__(events, flops, after)
        self._evaluated: list[float] = evaluated.tolist()
        self._across = self._answered = 0
        work = ~events.is_a(TRANSFER)
        parties = sorted({SERVER, *events.party.tolist()})
        self._work = {party: _Ended(events, np.flatnonzero(work & (events.party == party))) for party in parties}
        coming = events.is_a(TRANSFER)
        self._coming = {party: _Ended(events, np.flatnonzero(coming & (events.peer == party))) for party in parties}
        self._used: set[int] = set()

    def put(self, builder: LogBuilder) -> None:
        super().put(builder)
        down = sum(1 for place in self.transfers.tolist() if self.events.party[place] == SERVER and self._counts(place))
        if self._across:
            self.notes.append(f"{self._across:,} times are left out: an evaluation lies in them")
        if (lacking := down - self._answered) > 0:
            self.notes.append(
                f"{lacking:,} of {down:,} messages to clients are left out: no computation of an idle client follows "
                "them at once"
            )

    def _operation(self, builder: LogBuilder, place: int) -> None:
        if not self._counts(place):
            return
        events, party = self.events, int(self.events.party[place])
        start, end = float(events.start[place]), float(events.end[place])
        before, came = self._work[party].last(start, place), self._coming[party].last(start)
        if party == SERVER:
            begun = max(self._time(before), self._time(came))
        else:
            begun = self._time(before)
            if came is not None and self._time(came) > begun:  # it was idle when the message was sent
                begun = -math.inf
                self._answer(builder, came, start)
        begun = begun if begun > -math.inf else start
        if not self._evaluating(begun, start):
            self._add(builder, place, end - begun)

    def _answer(self, builder: LogBuilder, transfer: int, received: float) -> None:
        """Add a message to a client that begins to compute with it at ``received``."""
        events, start = self.events, float(self.events.start[transfer])
        sent = max(self._time(self._work[SERVER].last(start)), self._time(self._coming[SERVER].last(start)))
        if sent > -math.inf and transfer not in self._used:
            self._used.add(transfer)
            self._answered += 1
            if self._evaluating(sent, received):
                return
            builder.message(SERVER, int(events.peer[transfer]), received - sent, int(events.bytes[transfer]))

    def _message(self, builder: LogBuilder, place: int) -> None:
        events, client = self.events, int(self.events.party[place])
        if client == SERVER:
            return  # added where its receiver computes with it
        arrived = float(events.end[place])
        upload = self._work[client].last(arrived, kinds=self._kinds_of_uploads)
        if upload is None or upload in self._used:
            return
        self._used.add(upload)
        began = float(events.start[upload])
        before, came = self._time(self._work[client].last(began, upload)), self._time(self._coming[client].last(began))
        prepared = began - before if before > came else 0.0
        if self._evaluating(began - prepared, arrived):
            return
        builder.message(client, SERVER, prepared + arrived - float(events.end[upload]), int(events.bytes[place]))

    def _evaluating(self, begin: float, end: float) -> bool:
        """Return whether an evaluation ended in the time between; count it."""
        inside = bisect_right(self._evaluated, end) > bisect_right(self._evaluated, begin)
        self._across += inside
        return inside

    @property
    def _kinds_of_uploads(self) -> frozenset[int]:
        return frozenset(self.events.kind[self.uploads].tolist())

    def _time(self, place: int | None) -> float:
        return -math.inf if place is None else float(self.events.end[place])


class _Ended:
    """Some events in the order in which they ended."""

    def __init__(self, events: Activities, places: np.ndarray) -> None:
        order = np.lexsort((places, events.end[places]))
        self._places: list[int] = places[order].tolist()
        self._ends: Floats = events.end[places][order]
        self._kinds: list[int] = events.kind[self._places].tolist()

    def last(self, until: float, but: int | None = None, kinds: frozenset[int] | None = None) -> int | None:
        """Return the latest one that ended ``until`` a time, other than ``but``, and of certain kinds."""
        place = bisect_right(self._ends, until) - 1
        while place >= 0 and (self._places[place] == but or (kinds is not None and self._kinds[place] not in kinds)):
            place -= 1
        return self._places[place] if place >= 0 else None
