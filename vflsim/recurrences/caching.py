"""Rounds in which parties step on cached exchanges while they wait: whoever waits longer takes more steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Stretches, undecided
from vflsim.recurrences.in_flight import EMBEDDED, MOVES, THERE, TripDraws, Trips, counted
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats

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
    """What a round leaves: times of the embeddings (6, M) and of the gradients (M,); the parties' work."""

    embeds: Floats
    serve: _Work
    leaves: Floats
    arrives: Floats
    step: _Work
    cached: list[_Work]
    of_server: list[_Work]


class CachingRounds(Trips):
    """A round waits for all embeddings, and each client for its gradient; both step on cached exchanges meanwhile.

    A step under way is finished. What follows a round's end up to the next gradient is the consequence of the round:
    the first round's embeddings come before it. The third operation of the clients' steps, and the server's second
    one, are on a cached exchange.
    """

    def __init__(self, world: TimedWorld, size: int, uses: int) -> None:
        super().__init__(world)
        clients, draws = len(world.clients), self.draw(0, 1, self.services[:1])
        self._served = 0  # the server's steps on cached exchanges
        self._caches, self._server_cache = Caches(size, uses, clients), Caches(size, uses, 1)
        self._last = self._play(0, draws)
        embeds = self._last.embeds[:, None]
        kinds, places = draws.kinds[:, None], self.columns[None]
        self._before = (self.moves("up", self.trip.up.way, embeds[MOVES], embeds[THERE], kinds, places),)
        self._spans = self._sending([self._last], draws, after=False)

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on.

        Raises ``UndecidedError`` if a message arrives as a step on a cached exchange could begin.
        """
        draws = self.draw(first + 1, count, self.services[:1])
        rounds = [self._last, *(self._play(first + 1 + k, draws) for k in range(count))]
        done, following, self._last = rounds[:-1], rounds[1:], rounds[-1]
        kinds = self.world.kind_of(np.arange(first, first + count))
        places = np.broadcast_to(self.columns, (count, len(self.columns)))
        leaves, arrives = np.array([each.leaves for each in done]), np.array([each.arrives for each in done])
        moves, there = (np.array([each.embeds[time] for each in following]) for time in (MOVES, THERE))
        down = self.moves("down", self.trip.down.way, leaves, arrives, kinds[:, None], places)
        up = self.moves("up", self.trip.up.way, moves, there, draws.kinds[:, None], places)
        most = max(len(each.cached) for each in following)
        steps = np.full((count, 1 + most, len(self.columns)), np.inf)
        for k, (round_, after) in enumerate(zip(done, following, strict=True)):
            steps[k, : 1 + len(after.cached)] = [round_.step.ends, *(work.ends for work in after.cached)]
        before, spans = ((), ()) if first else (self._before, self._spans)
        if self.world.metered:
            spans = (*spans, *self._receiving(done))
        spans += self._sending(following, draws, after=True)
        ends, waited = (np.array([float(getattr(each.serve, name)[0]) for each in done]) for name in ("ends", "began"))
        ages = self.world.fresh_ages(kinds)
        return Chunk(first, ends, waited, None, steps, (), (down, up), ages, before=before, spans=spans)

    # --- one round ------------------------------------------------------------------------------------------------

    def _play(self, number: int, draws: TripDraws) -> _Round:
        k = number - draws.first
        kind, embeds, serving = int(draws.kinds[k]), self.embed(number, draws), draws.server[k]
        there = embeds[THERE]
        of_server = self._server_waits(float(there.max()), number)
        waited = max(self.server, float(there.max()))
        self.server = ended = waited + float(serving[0])
        self._server_cache.put(number)
        self.answer_in(np.argsort(there, kind="stable"))
        leaves, arrives = self.carried("down", self.trip.down.way, kind, draws.down[k] + ended)
        cached, now = self._clients_wait(embeds[EMBEDDED], arrives, number)
        which = np.zeros(len(now), np.int64)
        for work in cached:
            which[work.ends < np.inf] = 1
        step = self._work(now, which, np.full(len(now), kind), np.ones(len(now), bool))
        self._caches.put(number)
        self.free = step.ends
        self.note(step.ends)
        serve = _Work(np.array([waited]), np.array([ended]), serving, counted(self.trip.serve)[kind])
        return _Round(embeds, serve, leaves, arrives, step, cached, of_server)

    def _server_waits(self, until: float, number: int) -> list[_Work]:
        """Let the server step on cached exchanges until all embeddings are there."""
        works, act, everybody = list[_Work](), self.services[1], np.ones(1, bool)
        while self.server <= until and self._server_cache.ready[0]:
            if self.server == until:
                raise undecided("the last embedding arrives as the server could step", number, until)
            kind = self.world.kind_of(self._server_cache.take(everybody))
            seconds = act.draw.series.stage.take(np.array([self._served])) * act.factors[kind[0]]
            self._served += 1
            began = np.array([self.server])
            works.append(_Work(began, began + seconds, seconds, counted(act)[kind[0]]))
            self.server = float(works[-1].ends[0])
        return works

    def _clients_wait(self, now: Floats, until: Floats, number: int) -> tuple[list[_Work], Floats]:
        """Let clients step on cached exchanges until the gradients are there; return when they go on."""
        works = list[_Work]()
        while (able := self._caches.ready & (now <= until)).any():
            if np.any(able & (now == until)):
                raise undecided("a gradient arrives as its client could step", number, float(until.min()))
            kinds = self.world.kind_of(self._caches.take(able))
            work = self._work(now, np.full(len(now), 2), kinds, able)
            now = np.where(able, work.ends, now)
            works.append(work)
            self.note(now)
        return works, np.maximum(now, until)

    def _work(self, now: Floats, which: Ints, kinds: Ints, whose: Bools) -> _Work:
        """Return a step of each client that ``whose`` selects, by ``which`` operation, on batches of ``kinds``."""
        seconds, ends = self.step(now, which, kinds, whose)
        flops: Floats = self.flops[which, kinds, self.columns] * whose
        return _Work(np.where(whose, now, np.inf), np.where(whose, ends, np.inf), seconds, flops)

    # --- what rounds leave ----------------------------------------------------------------------------------------

    def _sending(self, rounds: Sequence[_Round], draws: TripDraws, after: bool) -> tuple[Stretches, ...]:
        """Return what clients do until they send embeddings, and the parties on cached exchanges."""
        if not self.world.metered:
            return ()
        times = np.array([each.embeds for each in rounds]).swapaxes(0, 1)
        spans = [*self.sending(times, draws.kinds[:, None], self.columns, draws.embed, after)]
        for places, lists in (
            (self.columns, [each.cached for each in rounds]),
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
            _computing([each.step for each in rounds], self.columns, after=True),
        )


def _computing(works: Sequence[_Work], places: Ints, after: bool) -> Stretches:
    began, ends, seconds, flops = (
        np.array([getattr(work, name) for work in works]) for name in ("began", "ends", "seconds", "flops")
    )
    return Stretches("compute", began, ends, places, flops, seconds, after)
