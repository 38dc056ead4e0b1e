"""Rounds in which parties step on cached exchanges while they wait: whoever waits longer takes more steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Moves, Stretches, undecided
from vflsim.recurrences.client_times import ClientTimes
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Draw, SingleTrip, TimedService, TimedWork
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Activated

_NEVER = np.iinfo(np.int64).max


class Caches:
    """The latest ``size`` (W) exchanges of each party (M), each for at most ``uses`` (R) steps, the first included.

    An exchange may be used again when W - 1 other steps have been taken since, the one longest unused first. One older
    than W R exchanges is dropped.
    """

    def __init__(self, size: int, uses: int, parties: int) -> None:
        self._size, self._uses = size, uses
        self._exchange = np.full((size, parties), -1)  # -1: nothing
        self._used_at, self._used = np.zeros((size, parties), np.int64), np.zeros((size, parties), np.int64)
        self._steps = np.zeros(parties, np.int64)
        self._columns = np.arange(parties)

    def put(self, exchange: int) -> None:
        """Add what all parties have exchanged, of which each has taken a step just now; drop the old and the oldest."""
        self._exchange[self._exchange < exchange - self._size * self._uses] = -1
        if self._uses > 1:
            places = self._exchange.argmin(axis=0), self._columns
            self._exchange[places], self._used_at[places], self._used[places] = exchange, self._steps, 1
        self._steps += 1

    @property
    def ready(self) -> Bools:
        """Which parties have an exchange that may be used (M,)."""
        ready: Bools = np.logical_or.reduce(self._free)
        return ready

    @property
    def _free(self) -> Bools:
        free: Bools = (self._exchange >= 0) & (self._steps - self._used_at >= self._size)
        return free

    def take(self, whose: Bools) -> Ints:
        """Return the exchange that each party uses (M,), and count the uses by the parties that ``whose`` selects.

        The number means nothing for a party without a ready exchange.
        """
        chosen = np.where(self._free, self._used_at, _NEVER).argmin(axis=0)
        exchanges: Ints = np.maximum(self._exchange[chosen, self._columns], 0)
        places = chosen[whose], self._columns[whose]
        self._used_at[places] = self._steps[whose]
        self._used[places] += 1
        self._steps[whose] += 1
        self._exchange[places] = np.where(self._used[places] == self._uses, -1, self._exchange[places])
        return exchanges


# --- rounds with caches -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """Computations (M,), or one of the server (1,): from when to when (inf: none), seconds, and operations.

    The operations are 0 if they have no energy.
    """

    began: Floats
    ends: Floats
    seconds: Floats
    flops: Floats

    @classmethod
    def nothing(cls, parties: int) -> _Work:
        """Return what never begins."""
        never, nothing = np.full(parties, np.inf), np.zeros(parties)
        return cls(never, never, nothing, nothing)


@dataclass(slots=True)
class _Round:
    """What a round leaves: times (M,) up to the embeddings' arrivals, and of the gradients; the parties' work."""

    embed: _Work
    sent: Floats
    moves: Floats
    there: Floats
    serve: _Work
    leaves: Floats
    arrives: Floats
    step: _Work
    cached: list[_Work] = field(default_factory=list)
    of_server: list[_Work] = field(default_factory=list)


class CachingRounds:
    """A round waits for all embeddings, and each client for its gradient; both step on cached exchanges meanwhile.

    A step under way is finished. What follows a round's end up to the next gradient is the consequence of the round:
    the first round's embeddings come before it. The acts of the clients have three operations for steps: along the
    gradient if the client has not stepped since it embedded the batch; if it has; and on a cached exchange. The last
    act is the server's step on a cached exchange.
    """

    def __init__(self, world: TimedWorld, size: int, uses: int) -> None:
        self._world, self._times = world, ClientTimes(world)
        acts = [act for act in world.round if not isinstance(act, Activated)]
        self._trip = SingleTrip.of(tuple(acts[:6]))
        again, cached, of_server = acts[6:]
        assert isinstance(again, TimedWork)
        assert isinstance(cached, TimedWork)
        assert isinstance(of_server, TimedService)
        works = self._trip.step, again, cached
        self._factors = np.array([work.factors for work in works])  # (3, kinds, M)
        self._flops = np.array([_counted(work) for work in works])
        self._cached_at_server = of_server
        clients = len(world.clients)
        self._columns, self._now, self._server = np.arange(clients), np.zeros(clients), 0.0
        self._stepped = np.zeros(clients, np.int64)
        self._served = 0  # the server's steps on cached exchanges
        self._caches, self._server_cache = Caches(size, uses, clients), Caches(size, uses, 1)
        self._last = self._play(0, self._draw(0, 1), 0)
        first, kinds, places = self._last, world.kind_of(np.zeros(1, np.int64)), self._columns[None]
        up = self._trip.up.way
        self._before: tuple[Moves, ...] = (
            self._times.moves("up", up, first.moves[None], first.there[None], kinds[:, None], places),
        )
        self._spans: tuple[Stretches, ...] = self._sending([first], after=False) if world.metered else ()

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on.

        Raises ``UndecidedError`` if a message arrives as a step on a cached exchange could begin.
        """
        draws = self._draw(first + 1, count)
        rounds = [self._last] + [self._play(first + 1 + k, draws, k) for k in range(count)]
        done, following, self._last = rounds[:-1], rounds[1:], rounds[-1]
        kinds = self._world.kind_of(np.arange(first, first + count + 1))
        places = np.broadcast_to(self._columns, (count, len(self._columns)))
        leaves, arrives = np.array([each.leaves for each in done]), np.array([each.arrives for each in done])
        moves, there = np.array([each.moves for each in following]), np.array([each.there for each in following])
        down = self._times.moves("down", self._trip.down.way, leaves, arrives, kinds[:-1, None], places)
        up = self._times.moves("up", self._trip.up.way, moves, there, kinds[1:, None], places)
        most = max(len(each.cached) for each in following)
        steps = np.full((count, 1 + most, len(self._columns)), np.inf)
        for k, (round_, after) in enumerate(zip(done, following, strict=True)):
            steps[k, : 1 + len(after.cached)] = [round_.step.ends, *(work.ends for work in after.cached)]
        before, spans = ((), ()) if first else (self._before, self._spans)
        if self._world.metered:
            spans = (*spans, *self._receiving(done), *self._sending(following, after=True))
        ends, waited = (np.array([float(getattr(each.serve, name)[0]) for each in done]) for name in ("ends", "began"))
        ages = self._world.fresh_ages(kinds[:-1])
        return Chunk(first, ends, waited, None, steps, (), (down, up), ages, before=before, spans=spans)

    def _draw(self, first: int, count: int) -> tuple[Ints, Floats, Floats, Floats, Floats, Floats]:
        """Draw what batches from ``first`` on take: their kinds; embeddings, uploads, latencies up and down; steps."""
        trip, kinds = self._trip, self._world.kind_of(np.arange(first, first + count))

        def rows(draw: Draw) -> Floats:
            return draw.of(draw.series.rows(first, count))

        latencies = rows(trip.up.way.latency), rows(trip.down.way.latency)
        embed = trip.embed.seconds(rows(trip.embed.draw), kinds)
        return kinds, embed, rows(trip.up.delay), *latencies, trip.server_seconds(first, kinds)

    # --- one round ------------------------------------------------------------------------------------------------

    def _play(self, number: int, draws: tuple[Ints, Floats, Floats, Floats, Floats, Floats], k: int) -> _Round:
        """Play round ``number``, whose draws are in row k."""
        kinds, embedding, uploading, up, down, serving = draws
        trip, times, kind = self._trip, self._times, int(kinds[k])
        sending, ready = times.now.sending, times.activated(self._now, number)
        embedded = ready + times.lasting(ready, embedding[k])
        sent = embedded + times.lasting(embedded, uploading[k])
        for ends in (ready, embedded, sent):
            sending.note(ends)
        moves, there = times.carried("up", trip.up.way, kind, sent + up[k])
        of_server = self._server_waits(float(there.max()), number)
        waited = max(self._server, float(there.max()))
        self._server = ended = waited + float(serving[k])
        self._server_cache.put(number)
        sending.server = np.argsort(there, kind="stable")
        leaves, arrives = times.carried("down", trip.down.way, kind, down[k] + ended)
        cached, now = self._clients_wait(embedded, arrives, number)
        which = np.zeros(len(now), np.int64)
        for work in cached:
            which[work.ends < np.inf] = 1
        step = self._steps(now, which, np.full(len(now), kind), np.ones(len(now), bool))
        self._stepped += 1
        self._caches.put(number)
        self._now = step.ends
        sending.note(step.ends)
        embed = _Work(ready, embedded, embedding[k], _counted(trip.embed)[kind])
        serve = _Work(np.array([waited]), np.array([ended]), serving[k : k + 1], _counted(trip.serve)[kind])
        return _Round(embed, sent, moves, there, serve, leaves, arrives, step, cached, of_server)

    def _server_waits(self, until: float, number: int) -> list[_Work]:
        """Let the server step on cached exchanges until all embeddings are there."""
        works, act, everybody = list[_Work](), self._cached_at_server, np.ones(1, bool)
        while self._server <= until and self._server_cache.ready[0]:
            if self._server == until:
                raise undecided("the last embedding arrives as the server could step", number, until)
            kind = self._world.kind_of(self._server_cache.take(everybody))
            seconds = act.draw.series.stage.take(np.array([self._served])) * act.factors[kind[0]]
            self._served += 1
            began = np.array([self._server])
            works.append(_Work(began, began + seconds, seconds, _counted(act)[kind[0]]))
            self._server = float(works[-1].ends[0])
        return works

    def _clients_wait(self, now: Floats, until: Floats, number: int) -> tuple[list[_Work], Floats]:
        """Let clients step on cached exchanges until the gradients are there; return when they go on."""
        works = list[_Work]()
        while (able := self._caches.ready & (now <= until)).any():
            if np.any(able & (now == until)):
                raise undecided("a gradient arrives as its client could step", number, float(until.min()))
            kinds = self._world.kind_of(self._caches.take(able))
            work = self._steps(now, np.full(len(now), 2), kinds, able)
            self._stepped += able
            now = np.where(able, work.ends, now)
            works.append(work)
            self._times.now.sending.note(now)
        return works, np.maximum(now, until)

    def _steps(self, now: Floats, which: Ints, kinds: Ints, whose: Bools) -> _Work:
        """Return a step of each client that ``whose`` selects, by ``which`` operation, on batches of ``kinds``."""
        seconds = self._trip.step.draw.series.stage.take(self._stepped) * self._factors[which, kinds, self._columns]
        ends = now + self._times.lasting(now, seconds, whose)
        flops: Floats = self._flops[which, kinds, self._columns] * whose
        return _Work(np.where(whose, now, np.inf), np.where(whose, ends, np.inf), seconds, flops)

    # --- what rounds leave ----------------------------------------------------------------------------------------

    def _sending(self, rounds: Sequence[_Round], after: bool) -> tuple[Stretches, ...]:
        """Return what clients do until they send embeddings, and the parties on cached exchanges."""
        embedded, sent = np.array([each.embed.ends for each in rounds]), np.array([each.sent for each in rounds])
        spans = [_computing([each.embed for each in rounds], self._columns, after)]
        spans.append(Stretches("radio", embedded, sent, self._columns))
        for places, lists in (
            (self._columns, [each.cached for each in rounds]),
            (AT_SERVER, [each.of_server for each in rounds]),
        ):
            nothing = _Work.nothing(len(places))
            for place in range(max(map(len, lists))):
                filled = [works[place] if place < len(works) else nothing for works in lists]
                spans.append(_computing(filled, places, after))
        return tuple(spans)

    def _receiving(self, rounds: Sequence[_Round]) -> tuple[Stretches, ...]:
        """Return what the server does in its steps, and clients with the gradients."""
        return (
            _computing([each.serve for each in rounds], AT_SERVER, after=False),
            _computing([each.step for each in rounds], self._columns, after=True),
        )


def _computing(works: Sequence[_Work], places: Ints, after: bool) -> Stretches:
    """Return the spans of computations, one a round."""
    began, ends, seconds, flops = (
        np.array([getattr(work, name) for work in works]) for name in ("began", "ends", "seconds", "flops")
    )
    return Stretches("compute", began, ends, places, flops, seconds, after)


def _counted(work: TimedWork | TimedService) -> Floats:
    """Return the operations of computations (kinds, M) or (kinds, 1), 0 where they have no energy."""
    return np.zeros_like(work.factors) if work.flops is None else work.flops
