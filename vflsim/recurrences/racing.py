"""Rounds that may end without some clients: finds the clients that are in time, and the state of the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from vflsim.recurrences.ages import ClientAges, TableAges
from vflsim.recurrences.chunk import Bools, Chunk, Moves, undecided
from vflsim.recurrences.first_answers import first_of
from vflsim.recurrences.stages import Stage
from vflsim.recurrences.synchronous import Program
from vflsim.recurrences.timed import SingleTrip, seconds
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats


class Heat(NamedTuple):
    """One round, each array (M,): when a client is free to begin it, has embedded, has waited its upload delay, starts
    the transfer, would deliver; whether the step uses it; when its gradient's transfer starts, and ends. ``waited`` and
    ``end`` are the server's times."""

    number: int
    free: Floats
    embedded: Floats
    uploaded: Floats
    began: Floats
    arrives: Floats
    used: Bools
    answered: Floats
    heard: Floats
    waited: float
    end: float

    @property
    def in_time(self) -> Bools:
        """Whether each client's embedding has arrived when the server begins its step."""
        return self.arrives <= self.waited


class Racing(ABC):
    """A round up to its gradients; subclasses choose the clients that the server waits for, and cancel work."""

    def __init__(self, world: TimedWorld, ages: ClientAges) -> None:
        self.world, self._ages = world, ages
        self.trip = trip = SingleTrip.of(world.round)
        self.up, self.down = trip.up.way, trip.down.way
        clients = len(world.clients)
        now = Now(clients)
        self._before: tuple[Moves, ...] = ()
        if world.before:
            self._before = Program(world, world.before).play(0, 1, now).during
        self.free, self._first_free, self.end = now.clients, now.server, 0.0
        series = trip.embed.draw.series, trip.up.delay.series, self.up.latency.series, trip.step.draw.series
        self.embeds, self.uploads, self.sends, self.steps = (np.full(clients, each.skipped) for each in series)
        self._up_seconds, self._down_seconds = self.up.seconds, self.down.seconds
        self._empty_seconds = seconds(world.empty, self.down.rates)

    @abstractmethod
    def choose(self, arrives: Floats) -> tuple[float, Bools]:
        """Return the end of the server's wait, and the clients that it uses, given all arrival times (M,)."""

    @abstractmethod
    def settle(self, heat: Heat, up: Moves, place: int) -> None:
        """Record what each client has begun and sent by the end of the round (row ``place`` of ``up``), and when it is
        free. ``steps`` counts used embeddings only. Raises ``UndecidedError``."""

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on. Raises ``UndecidedError``."""
        world, shape = self.world, (count, len(self.world.clients))
        kinds = world.kind_of(np.arange(first, first + count))
        server = self.trip.server_seconds(first, kinds).tolist()
        back = self.down.latency.series.rows(first, count)[:, 0]
        ends, waited, used, steps = np.empty(count), np.empty(count), np.empty(shape, bool), np.empty(shape)
        sizes = np.empty(shape, np.int64)
        counted = np.empty(shape, np.int64)
        up = Moves("up", np.empty(shape), np.empty(shape), self.up.sizes[kinds], counted, self.up.rates)
        down = Moves("down", np.empty(shape), np.empty(shape), sizes, sizes, self.down.rates)
        ages = self._ages.empty(count)
        for k, kind in enumerate(kinds.tolist()):
            heat = self._heat(first + k, kind, server[k], back[k])
            self.settle(heat, up, k)
            ready = self.free + self.trip.step.take(self.steps, kind)
            self.free = np.where(heat.used, ready, self.free)
            self.steps += heat.used
            self.end = heat.end
            ends[k], waited[k], used[k] = heat.end, heat.waited, heat.used
            steps[k] = np.where(heat.used, ready, np.inf)
            down.began[k], down.ends[k] = heat.answered, heat.heard
            sizes[k] = np.where(heat.used, self.down.sizes[kind], world.empty)
            self._ages.note(ages, k, heat.number, heat.used)
        before = () if first else self._before
        return Chunk(first, ends, waited, used, steps, (up,), (down,), ages, before=before)

    def _heat(self, number: int, kind: int, server: float, back: Floats) -> Heat:
        embedded = self.free + self.trip.embed.take(self.embeds, kind)
        uploaded = embedded + self.trip.up.delay.series.stage.take(self.uploads)
        began = uploaded + self.up.latency.series.stage.take(self.sends)
        arrives = began + self._up_seconds[kind]
        waited, used = self.choose(arrives)
        waited = max(waited, self._first_free)
        if waited > self.end and np.any((self.free == waited) & (arrives == waited)):
            raise undecided("an embedding takes no time, and arrives as the server begins", number, waited)
        end = waited + server
        answered = end + back
        heard = answered + np.where(used, self._down_seconds[kind], self._empty_seconds)
        return Heat(number, self.free, embedded, uploaded, began, arrives, used, answered, heard, waited, end)


def undetermined(began: Floats, over: Floats, late: Bools, stage: Stage) -> bool:
    """Return whether a ``late`` client begins ``stage``, and draws, exactly when the round is ``over`` (M,)."""
    return stage.varies and bool(np.any(late & stage.random & (began == over)))


class FirstOfAll(Racing):
    """Every client begins a round when it is free; every begun activity consumes its draw.

    A client whose gradient arrives before it has finished its previous step skips the round.
    """

    def __init__(self, world: TimedWorld, t: int) -> None:
        super().__init__(world, TableAges(world))
        self._t = t

    def choose(self, arrives: Floats) -> tuple[float, Bools]:
        """Choose the first t."""
        return first_of(arrives, self._t)

    def settle(self, heat: Heat, up: Moves, place: int) -> None:
        """Settle the round: the gradient ends delay, computation and transfer."""
        heard, done = heat.heard, heat.in_time
        stages = (
            (heat.free, self.trip.embed.draw.series.stage),
            (heat.embedded, self.trip.up.delay.series.stage),
            (heat.uploaded, self.up.latency.series.stage),
        )
        undecidable = any(undetermined(began, heard, ~done, stage) for began, stage in stages)
        if undecidable or np.any(~done & (heat.arrives == heard)):
            raise undecided("a gradient arrives as its client begins another activity", heat.number, heat.end)
        sent = done | (heat.uploaded < heard)
        self.embeds += done | (heat.free < heard)
        self.uploads += done | (heat.embedded < heard)
        self.sends += sent
        delivered = done | (heat.arrives < heard)
        up.began[place] = heat.began
        up.ends[place] = np.where(delivered, heat.arrives, np.where(sent, heard, np.inf))
        cut = sent & ~delivered & (heat.began < heard)
        up.counted[place] = np.where(delivered, up.sizes[place], 0)
        if cut.any():
            moves = Moves("up", up.began[place], up.ends[place], up.sizes[place], up.counted[place], up.rates)
            up.counted[place, cut] = moves.only(cut).through(heard[cut])
        self.free = np.maximum(heat.free, heard)


class Dropping(Racing):
    """A client finishes its work, then joins the current round: the one after the latest end that it has heard of.

    Give exactly one of ``fastest`` (a number of clients) and ``deadline`` (seconds from a round's start).
    """

    def __init__(self, world: TimedWorld, fastest: int | None, deadline: float | None) -> None:
        super().__init__(world, ClientAges(world))
        self._fastest, self._deadline = fastest, deadline
        clients = len(world.clients)
        self._joined = np.full(clients, -1.0)  # when each client began its latest round
        self._used = np.zeros(clients, bool)  # whether that round used the client

    def choose(self, arrives: Floats) -> tuple[float, Bools]:
        """Choose the fastest clients, or those that meet the deadline, but at least the first."""
        if self._fastest is not None:
            return first_of(arrives, self._fastest)
        assert self._deadline is not None
        limit, last = self.end + self._deadline, float(arrives.max())
        used = arrives <= limit
        return (min(last, limit), used) if used.any() else first_of(arrives, 1)

    def settle(self, heat: Heat, up: Moves, place: int) -> None:
        """Let clients join the round and finish their uploads if they are free before they hear of its end."""
        heard = heat.heard
        if np.any(heard <= self._joined):
            raise undecided("a gradient overtakes the one before it", heat.number, heat.end)
        tied = (heat.free == heard) & ~heat.in_time
        if np.any(tied & (self._used | (heard == heat.waited))):
            raise undecided("a client is free as it hears that a round is over", heat.number, heat.end)
        joined = heat.in_time | (heat.free < heard)
        for count in (self.embeds, self.uploads, self.sends):
            count += joined
        self._joined = np.where(joined, heat.free, self._joined)
        self._used = np.where(joined, heat.used, self._used)
        up.began[place] = heat.began
        up.ends[place] = np.where(joined, heat.arrives, np.inf)
        up.counted[place] = up.sizes[place]
        self.free = np.where(joined, np.maximum(heat.uploaded, heard), heat.free)
