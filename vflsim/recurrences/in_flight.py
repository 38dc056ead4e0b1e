"""Trips of clients that do more than wait for gradients, and those that keep a window of batches in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Direction, Moves, Stretches, undecided
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import Draw, SingleTrip, TimedService, TimedWork, Way
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


_WAITED, _ENDED = range(2)
"""The times of the server's step on a batch. Then come the ends of its further steps, and the seconds of all."""
_LEAVES, _ARRIVES = range(2)
"""The times of a gradient: its transfer begins and ends."""
_BEGINS, _ENDS, _TAKES = range(3)
"""The times of a client's step, and its seconds."""


class InFlightRounds(Trips):
    """A round waits for all embeddings of its batch. Clients step ``steps`` times on each gradient, in their order.

    After each embedding a client steps on the gradients that are there, and waits for them while more than ``window``
    batches have none. Batch k is embedded after the steps on batch k - window - 1 at the earliest: it belongs to the
    consequences of that round.
    """

    def __init__(self, world: TimedWorld, window: int, steps: int) -> None:
        super().__init__(world)
        self._window, self._steps = window, steps
        clients, size = len(world.clients), window + 2
        self._taken = np.zeros(clients, np.int64)  # the gradients on which each client has stepped
        self._taken_before = np.zeros((size, clients), np.int64)  # and had when it embedded a batch
        # Of the batches that may be in flight, by their number modulo the ring's size:
        self._of_server, self._gradients = np.zeros((size, 1 + 2 * len(self.services))), np.zeros((size, 2, clients))
        self._of_steps, self._anew = np.zeros((size, steps, 3, clients)), np.zeros((size, clients), np.int64)
        draws = self.draw(0, window + 1, self.services)
        embeds = np.empty((window + 1, 6, clients))
        for batch in range(window + 1):
            if batch:
                self._answer(batch - 1)
            embeds[batch] = self._begin(batch, draws)
        flat = embeds.swapaxes(0, 1).reshape(6, 1, -1)
        kinds, places = draws.kinds.repeat(clients)[None], np.tile(self.columns, window + 1)[None]
        self._before = (self.moves("up", self.trip.up.way, flat[MOVES], flat[THERE], kinds, places),)
        self._spans = self.sending(flat, kinds, places, draws.embed.reshape(1, -1), after=False)

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on.

        Raises ``UndecidedError`` if a gradient arrives as a client looks for it.
        """
        size, ahead = self._window + 2, self._window + 1
        draws = self.draw(first + ahead, count, self.services)
        embeds = np.empty((count, 6, len(self.columns)))
        server = np.empty((count, self._of_server.shape[1]))
        gradients, steps = np.empty((count, 2, len(self.columns))), np.empty((count, *self._of_steps.shape[1:]))
        anew = np.empty((count, len(self.columns)), np.int64)
        for k in range(count):
            self._answer(first + k + ahead - 1)
            here = (first + k) % size
            server[k], gradients[k] = self._of_server[here], self._gradients[here]
            steps[k], anew[k] = self._of_steps[here], self._anew[here]
            embeds[k] = self._begin(first + k + ahead, draws)
        kinds = self.world.kind_of(np.arange(first, first + count))
        places, of = np.broadcast_to(self.columns, anew.shape), embeds.swapaxes(0, 1)
        leaves, arrives = gradients[:, _LEAVES], gradients[:, _ARRIVES]
        down = self.moves("down", self.trip.down.way, leaves, arrives, kinds[:, None], places)
        up = self.moves("up", self.trip.up.way, of[MOVES], of[THERE], draws.kinds[:, None], places)
        before, spans = ((), ()) if first else (self._before, self._spans)
        spans += self.sending(of, draws.kinds[:, None], places, draws.embed, after=True)
        if self.world.metered:
            spans += tuple(self._receiving(kinds, server, gradients, steps, anew))
        ends, waited, ages = server[:, _ENDED], server[:, _WAITED], self.world.fresh_ages(kinds)
        return Chunk(first, ends, waited, None, steps[:, :, _ENDS], (), (down, up), ages, before=before, spans=spans)

    # --- one batch ------------------------------------------------------------------------------------------------

    def _begin(self, batch: int, draws: TripDraws) -> Floats:
        """Let clients embed a batch, the server step on it, send the gradients and take its further steps.

        Return the times of the embeddings (6, M).
        """
        k, here = batch - draws.first, batch % len(self._of_server)
        embeds, self._taken_before[here] = self.embed(batch, draws), self._taken
        self.free = embeds[EMBEDDED if self._window else SENT]
        now = waited = max(self.server, float(embeds[THERE].max()))
        times = [waited]
        for seconds in draws.server[k].tolist():
            now += seconds
            times.append(now)
        self._of_server[here], self.server = [*times, *draws.server[k].tolist()], now
        leaves = draws.down[k] + times[_ENDED]
        self._gradients[here] = self.carried("down", self.trip.down.way, int(draws.kinds[k]), leaves)
        return embeds

    def _answer(self, latest: int) -> None:
        """Let clients step, after the embedding of batch ``latest``, on gradients of the batches in flight."""
        size = len(self._gradients)
        while True:
            taken, now, here = self._taken, self.free, self._taken % size
            arrives = self._gradients[here, _ARRIVES, self.columns]
            waiting = latest + 1 - taken
            forced = waiting > self._window
            if np.any((arrives == now) & (waiting > 0) & ~forced):
                place = int(np.flatnonzero((arrives == now) & (waiting > 0) & ~forced)[0])
                raise undecided("a gradient arrives as its client looks for it", int(taken[place]), float(now[place]))
            steps = (waiting > 0) & (forced | (arrives < now))
            if not steps.any():
                return
            now = np.where(steps, np.maximum(now, arrives), now)
            kinds = self.world.kind_of(taken)
            anew = (taken > self._taken_before[here, self.columns]).astype(np.int64)
            self._anew[here[steps], self.columns[steps]] = anew[steps]
            for number in range(self._steps):
                which = anew if number == 0 else np.ones_like(anew)
                seconds, ends = self.step(now, which, kinds, steps)
                ends = np.where(steps, ends, now)
                times = np.array([now, ends, seconds])
                self._of_steps[here[steps], number, :, self.columns[steps]] = times[:, steps].T
                now = ends
            self.free, self._taken = now, taken + steps

    # --- what rounds leave ----------------------------------------------------------------------------------------

    def _receiving(self, kinds: Ints, server: Floats, gradients: Floats, steps: Floats, anew: Ints) -> list[Stretches]:
        """Return what the server does from its step on, and clients with the gradients."""
        spans, count = list[Stretches](), 1 + len(self.services)
        for number, act in enumerate(self.services):
            began, ends, seconds = (server[:, [place + number]] for place in (0, 1, count))
            flops = counted(act)[kinds]
            spans.append(Stretches("compute", began, ends, AT_SERVER, flops, seconds, after=number > 0))
        for number in range(self._steps):
            which = anew if number == 0 else np.ones_like(anew)
            flops = self.flops[which, kinds[:, None], self.columns]
            began, ends, seconds = (steps[:, number, place] for place in (_BEGINS, _ENDS, _TAKES))
            spans.append(Stretches("compute", began, ends, self.columns, flops, seconds, after=True))
        return spans
