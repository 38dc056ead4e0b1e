"""The clients that each server step waited for, from the events, and the share of rounds that waited for each.

``rounds.used`` lists clients in client order, not by arrival. A step begins at the end of the instant in which its last
needed message arrives, or once the server has worked on those messages. The step waited for the clients among ``used``
with a message that arrived in that instant (for all of them if several arrive at once), and for clients that answered a
re-query then. A step waited for nobody if every message was there before, or if a deadline started it.

A message may itself have waited for others in its round: for shares of other clients, or for a query that the server
sent when another message arrived. :mod:`vflsim.plotting.waits` follows it back, message by message, to the
beginning of the round; the senders on that path were waited for *before*. If a client already had its peers' messages
when its own work ended, the client itself was the last that the round waited for.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from vflsim.results.events import NOBODY, Activities, Causes, Ints, Mask, Spans, activities, expanded
from vflsim.results.read import NotRecordedError
from vflsim.results.store.run import RecordedRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats

IDLE, OUT, QUEUE, DEADLINE = "idle", "outage", "queue", "deadline"


@final
@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The critical paths of a run's rounds, from their beginnings to the arrivals of the messages waited for.

    ``seconds`` sums all rounds per activity (the first part of an event's kind, ``queue``, ``deadline`` and ``idle``),
    ``before`` those until the arrival of the last message from another client (a barrier). ``round``, ``client``
    and ``weight`` list the clients waited for before that message could be sent; messages that arrive together share
    the weight. ``kinds`` are the kinds of these messages, most frequent first.
    """

    seconds: dict[str, float]
    before: dict[str, float]
    round: Ints
    client: Ints
    weight: Floats
    kinds: tuple[str, ...]


def critical_path(causes: Causes, start: Floats, ready: Floats, client: Ints) -> CriticalPath:
    """Follow every round back from its last message: from ``client`` (0: none, a deadline), arrived at ``ready``.

    ``start`` and ``ready`` are in seconds; all three arrays have one element per round.
    """
    walk = _Walk(causes, start)
    nobody = np.flatnonzero(client == SERVER)
    walk.add(DEADLINE, nobody, client[nobody], ready[nobody], start[nobody])
    rounds = np.flatnonzero(client != SERVER)
    walk.message(rounds, causes.message_of(client[rounds], ready[rounds]))
    while walk.unfinished():
        walk.step(client)
    return walk.path(client)


class _Walk:
    """The state of all rounds together: each is at a party and an instant, after the first ``place`` events."""

    def __init__(self, causes: Causes, start: Floats) -> None:
        self.causes, self.events, self.start = causes, causes.events, start
        self.party, self.time = np.zeros(len(start), np.int64), start.copy()
        self.place = np.zeros(len(start), np.int64)
        self.computing = np.full(len(start), np.nan)
        """Begin of the computation that led to the last message."""
        self.alone = np.ones(len(start), np.bool_)
        """Whether the round has waited for no earlier message."""
        self.seconds: dict[str, float] = {}
        self.before: dict[str, float] = {}
        self._hops: list[tuple[Ints, Ints, Floats]] = []
        self._kinds = np.zeros(len(causes.events.kinds), np.int64)
        self._out = causes.events.downtime()

    def unfinished(self) -> bool:
        """Whether some round has not reached its beginning."""
        return bool((self.time > self.start).any())

    def step(self, last: Ints) -> None:
        """Go back by one activity or message in every round that has not reached its beginning."""
        events, rounds = self.events, np.flatnonzero(self.time > self.start)
        party, time = self.party[rounds], self.time[rounds]
        before = np.minimum(np.searchsorted(events.end, time, side="right"), self.place[rounds])
        work, arrival = self.causes.latest_work(party, before), self.causes.latest_arrival(party, before)
        worked = np.where(work >= 0, events.end[work], -np.inf)
        arrived = np.where(arrival >= 0, events.end[arrival], -np.inf)
        by_work, latest = worked >= arrived, np.maximum(worked, arrived)
        self.add(IDLE, rounds, party, time, latest)
        self.time[rounds] = np.maximum(latest, self.start[rounds])
        unfinished = latest > self.start[rounds]
        self._work(rounds[unfinished & by_work], work[unfinished & by_work], last)
        at, heard = rounds[unfinished & ~by_work], arrival[unfinished & ~by_work]
        self._wait(*(column[events.party[heard] != SERVER] for column in (at, heard)))
        self.message(at, heard)

    def message(self, rounds: Ints, message: Ints) -> None:
        """Go from a message's arrival to its sender at the time of sending."""
        events = self.events
        sender, receiver, sent = events.party[message], events.peer[message], events.sent[message]
        begun = self.causes.latency_ends(message)
        self.add("transfer", rounds, sender, events.end[message], events.start[message], receiver)
        self.add(QUEUE, rounds, sender, events.start[message], begun)
        self.add("latency", rounds, sender, begun, sent)
        self.party[rounds], self.time[rounds], self.place[rounds] = sender, sent, message

    def add(self, what: str, rounds: Ints, party: Ints, end: Floats, begun: Floats, peer: Ints | None = None) -> None:
        """Count seconds of the rounds; while the party or its peer was out, count them as an outage."""
        low = np.maximum(begun, self.start[rounds])
        lasted = np.maximum(end - low, 0.0)
        high = low + lasted
        down = np.zeros(len(lasted))
        others = np.full(len(party), NOBODY) if peer is None else peer
        if self._out:
            for one, other in {*zip(party.tolist(), others.tolist(), strict=True)} if len(party) else ():
                if spans := [self._out[m] for m in (one, other) if m in self._out]:
                    some = (party == one) & (others == other)
                    down[some] = Spans.joined(spans).between(low[some], high[some])
        for sums, some in ((self.seconds, slice(None)), (self.before, ~self.alone[rounds])):
            sums[what] = sums.get(what, 0.0) + float((lasted - down)[some].sum())
            sums[OUT] = sums.get(OUT, 0.0) + float(down[some].sum())

    def path(self, last: Ints) -> CriticalPath:
        """Return the result."""
        itself = np.flatnonzero(self.alone & ~np.isnan(self.computing))
        heard = self.causes.heard_clients(last[itself], self.start[itself], self.computing[itself])
        itself = itself[heard]  # its peers' messages had arrived before its own work ended
        self._hops.append((itself, last[itself], np.ones(len(itself))))
        rounds, client, weight = (np.concatenate(column) for column in zip(*self._hops, strict=True))
        order, often = np.lexsort((client, rounds)), np.argsort(-self._kinds, kind="stable")
        kinds = tuple(self.events.kinds[code].partition(".")[2] for code in often if self._kinds[code])
        return CriticalPath(self.seconds, self.before, rounds[order], client[order], weight[order], kinds)

    def _work(self, rounds: Ints, work: Ints, last: Ints) -> None:
        events = self.events
        for name in events.activities(work):
            some = events.is_a(name)[work]
            self.add(name, rounds[some], events.party[work[some]], events.end[work[some]], events.start[work[some]])
        first = events.is_a("compute")[work] & (events.party[work] == last[rounds]) & np.isnan(self.computing[rounds])
        first &= self.alone[rounds]
        self.computing[rounds[first]] = events.start[work[first]]
        self.time[rounds], self.place[rounds] = events.start[work], work

    def _wait(self, rounds: Ints, message: Ints) -> None:
        """Record that these rounds waited for a client's message, and for others that arrived in the same instant."""
        self.alone[rounds] = False
        self._kinds += np.bincount(self.events.kind[message], minlength=len(self._kinds))
        at, sender = self.causes.together(message)
        self._hops.append((rounds[at], sender, 1 / np.bincount(at, minlength=len(rounds))[at]))


@final
@dataclass(frozen=True, eq=False)
class StepWaits:
    """The rounds of one run, one array element each, and the clients that they waited for.

    Round k begins at ``start[k]``, its server step at ``step[k]``, and both end at ``end[k]`` (seconds). Its last
    message arrived at ``ready[k]``, which is before ``step[k]`` if the server first works on the messages. ``round``
    and ``client`` are ascending pairs: the round at position ``round[j]`` waited for client ``client[j]``. ``path``
    holds the critical paths.
    """

    start: Floats
    ready: Floats
    step: Floats
    end: Floats
    round: Ints
    client: Ints
    path: CriticalPath

    def last(self) -> Ints:
        """Return the client that each round waited for (of several the highest number); 0: nobody."""
        return _last(len(self.start), self.round, self.client)

    def shares(self, clients: npt.ArrayLike) -> Floats:
        """Return the share of rounds that waited for each of ``clients``; clients waited for together share a round."""
        several = np.bincount(self.round, minlength=len(self.start))
        return self._shares(self.client, 1 / several[self.round], clients)

    def shares_before(self, clients: npt.ArrayLike) -> Floats:
        """Return the same for clients waited for *before*; a round with several such waits counts each."""
        return self._shares(self.path.client, self.path.weight, clients)

    def _shares(self, client: Ints, weights: Floats, clients: npt.ArrayLike) -> Floats:
        wanted = np.asarray(clients, np.int64)
        sums = np.bincount(client, weights, minlength=int(np.max(wanted, initial=0)) + 1)
        return sums[wanted] / max(len(self.start), 1)


def step_waits(run: RecordedRun, events: Activities | None = None) -> StepWaits:
    """Find the clients that a run's rounds waited for; ``events`` saves reading them again.

    Raises NotRecordedError if rounds or events were not kept, or if rounds and server steps do not match.
    """
    events = activities(run) if events is None else events
    causes = Causes(events)
    events, rounds = causes.events, run.table("rounds")
    start, end = (rounds[name].to_numpy() for name in ("start_s", "end_s"))
    steps = np.flatnonzero(events.is_kind("compute.server_step") & (events.party == SERVER) & events.done)
    if len(steps) != len(start):
        raise NotRecordedError(f"{len(start)} rounds, but {len(steps)} server steps", str(run.folder))
    needed = named(run, "used")
    ready = events.start[steps]
    while True:
        at, client = _arrived(events, causes.arrivals, needed, ready, run.info.awaited_replies)
        waiting = np.ones(len(start), np.bool_)
        waiting[at] = False
        earlier = causes.server_work_before(ready, steps, start)
        if not (waiting & (earlier < ready)).any():
            break
        ready = np.where(waiting, earlier, ready)
    last = _last(len(start), at, client)
    return StepWaits(start, ready, events.start[steps], end, at, client, critical_path(causes, start, ready, last))


def named(run: RecordedRun, column: str) -> tuple[Ints, Ints]:
    """Return (position of the round, client) for every client in a column of lists: ``used``, ``missing``, ``fresh``.

    Raises NotRecordedError if rounds were not kept.
    """
    lists = run.table("rounds")[column].combine_chunks()
    clients = lists.flatten().to_numpy().astype(np.int64)
    counts = lists.value_lengths().fill_null(0).to_numpy()
    return np.repeat(np.arange(len(counts)), counts), clients


def _arrived(
    events: Activities, arrivals: Mask, needed: tuple[Ints, Ints], ready: Floats, replies: tuple[str, ...]
) -> tuple[Ints, Ints]:
    """Return ascending (round, client) pairs of needed messages that arrived at the server in the instant ``ready``."""
    messages = events.where(arrivals & (events.peer == SERVER))
    first = np.searchsorted(ready, messages.end, side="left")
    count = np.searchsorted(ready, messages.end, side="right") - first  # several steps may begin in one instant
    message, at = expanded(first, count)
    client = messages.party[message]
    reply = messages.is_kind(*(f"transfer.{kind}" for kind in replies))[message]
    wanted = reply | np.isin(_pair(at, client), _pair(*needed))
    pairs = np.unique(_pair(at[wanted], client[wanted]))
    return pairs // _MOST, pairs % _MOST


def _last(rounds: int, at: Ints, client: Ints) -> Ints:
    last = np.zeros(rounds, np.int64)
    last[at] = client  # ascending: the highest one stays
    return last


_MOST = 2**31
"""Larger than any client's number."""


def _pair(position: Ints, client: Ints) -> Ints:
    return position * _MOST + client
