"""Trips of clients that do more than wait for gradients: what they draw, and how long what they do lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vflsim.recurrences.chunk import Bools, Direction, Moves, Stretches, undecided
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Draw, SingleTrip, TimedService, TimedWork, Way
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Activated

READY, EMBEDDED, UPLOADS, SENT, MOVES, THERE = range(6)
"""The times of an embedding: its computation, its upload delay and its transfer begin and end."""


@dataclass(frozen=True, slots=True)
class TripDraws:
    """Seconds of batches from ``first`` on: clients' activities, latencies (n, M); the server's (n, services)."""

    first: int
    kinds: Ints
    embed: Floats
    upload: Floats
    up: Floats
    down: Floats
    server: Floats


class Trips:
    """The clients' embeddings and steps; each array is of shape (M,).

    The acts have more operations than a trip. Of the steps the first is along the gradient if the client has not
    stepped since it embedded the batch, the second if it has; then come others, and further ones of the server.
    """

    def __init__(self, world: TimedWorld) -> None:
        acts = [act for act in world.round if not isinstance(act, Activated)]
        self.world, self.trip = world, SingleTrip.of(tuple(acts[:6]))
        self.services = [self.trip.serve, *(act for act in acts[6:] if isinstance(act, TimedService))]
        works = [self.trip.step, *(act for act in acts[6:] if isinstance(act, TimedWork))]
        self._factors = np.array([work.factors for work in works])  # (operations, kinds, M)
        self.flops = np.array([counted(work) for work in works])
        self._pauses, self._processes, self._links = world.pauses, world.activations(), world.shared_links
        self._waiting = bool(world.pauses) or any(process is not None for process in self._processes)
        if self._links is not None and world.pauses:
            raise undecided("messages that share links stand aside while clients pause", 0, 0.0)
        clients = len(world.clients)
        self._order = Now(clients)
        """In which order messages enter links on which they wait."""
        self.columns, self.server = np.arange(clients), 0.0
        self.free, self._sent = np.zeros(clients), np.zeros(clients)
        self._stepped = np.zeros(clients, np.int64)

    def draw(self, first: int, count: int, services: Sequence[TimedService]) -> TripDraws:
        """Draw what ``count`` batches from ``first`` on take, of the server in these ``services``."""
        trip, kinds = self.trip, self.world.kind_of(np.arange(first, first + count))

        def rows(draw: Draw) -> Floats:
            return draw.of(draw.series.rows(first, count))

        clients = trip.embed.seconds(rows(trip.embed.draw), kinds), rows(trip.up.delay)
        latencies = rows(trip.up.way.latency), rows(trip.down.way.latency)
        served = [act.seconds(act.draw.series.rows(first, count)[:, :, 0], kinds) for act in services]
        return TripDraws(first, kinds, *clients, *latencies, np.concatenate(served, axis=1))

    def embed(self, batch: int, draws: TripDraws) -> Floats:
        """Let all clients embed a batch, and send it; return the times (6, M). Uploads follow each other."""
        k = batch - draws.first
        ready = self._pauses.active(self._processes, self.free, batch) if self._waiting else self.free
        embedded = ready + self._lasting(ready, draws.embed[k])
        uploads = np.maximum(embedded, self._sent)
        self._sent = uploads + self._lasting(uploads, draws.upload[k])
        for ends in (ready, embedded, self._sent):
            self.note(ends)
        moves, there = self.carried("up", self.trip.up.way, int(draws.kinds[k]), self._sent + draws.up[k])
        return np.array([ready, embedded, uploads, self._sent, moves, there])

    def step(self, now: Floats, which: Ints, kinds: Ints, whose: Bools) -> tuple[Floats, Floats]:
        """Return seconds and ends of a step of each client that ``whose`` selects, by ``which`` operation."""
        seconds = self.trip.step.draw.series.stage.take(self._stepped) * self._factors[which, kinds, self.columns]
        self._stepped = self._stepped + whose
        return seconds, now + self._lasting(now, seconds, whose)

    def note(self, times: Floats) -> None:
        """Note when an activity of each client ends, where messages wait for others."""
        if self._links is not None and self._links.serial:
            self._order.sending.note(times)

    def answer_in(self, order: Ints) -> None:
        """Have the server send its messages to clients in this order of their places."""
        self._order.sending.server = order

    def _lasting(self, now: Floats, seconds: Floats, whose: Bools | None = None) -> Floats:
        """Return how long work of ``seconds`` lasts from ``now`` on, for clients that ``whose`` selects (None: all)."""
        return self._pauses.lasting(now, seconds, whose) if self._pauses else seconds

    def carried(self, direction: Direction, way: Way, kind: int, entered: Floats) -> tuple[Floats, Floats]:
        """Return when messages begin to move and end, at most one of each client in each direction at a time."""
        if self._links is None:
            seconds: Floats = way.seconds[kind]
            moving = self._pauses.moving(direction, entered, way.sizes[kind], seconds) if self._pauses else seconds
            return entered, entered + moving
        kinds, began = np.array([kind]), entered[None].copy()
        moves = Moves(direction, began, np.empty_like(began), way.sizes, way.sizes, way.rates)
        ends = self._links.carrying(moves, way, kinds, self._order)(0, kind)
        return began[0], ends

    # --- what rounds leave ------------------------------------------------------------------------------------------

    def moves(self, direction: Direction, way: Way, began: Floats, ends: Floats, kinds: Ints, places: Ints) -> Moves:
        """Return transfers of any shape, of clients at ``places`` about batches of ``kinds``."""
        sizes, profiles = way.sizes[kinds, places], None
        if self._pauses:
            profiles = self._pauses.profiles(direction)[places]
        moves = Moves(direction, began, ends, sizes, sizes, way.rates[places], profiles=profiles, places=places)
        return moves if self._links is None else replace(moves, profiles=self._links.shares(moves, way, kinds[:, 0]))

    def sending(self, times: Floats, kinds: Ints, places: Ints, seconds: Floats, after: bool) -> tuple[Stretches, ...]:
        """Return what clients do until they send embeddings, by the times of these (6, n, m); none if not metered."""
        if not self.world.metered:
            return ()
        flops = counted(self.trip.embed)[kinds, places]
        return (
            Stretches("compute", times[READY], times[EMBEDDED], places, flops, seconds, after),
            Stretches("radio", times[UPLOADS], times[SENT], places),
        )


def counted(work: TimedWork | TimedService) -> Floats:
    """Return the operations of computations (kinds, M) or (kinds, 1), 0 where they have no energy."""
    return np.zeros_like(work.factors) if work.flops is None else work.flops
