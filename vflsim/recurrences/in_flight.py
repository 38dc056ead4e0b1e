"""Clients that keep a window of batches in flight: they embed ahead of the gradients on which they step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Chunk, Moves, Stretches, undecided
from vflsim.recurrences.client_times import ClientTimes
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Draw, SingleTrip, TimedService, TimedWork, of_kinds
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Activated

_READY, _EMBEDDED, _UPLOADS, _SENT, _MOVES, _THERE = range(6)
"""The times of an embedding: its computation, its upload delay and its transfer begin and end."""
_WAITED, _ENDED = range(2)
"""The times of the server's step on a batch. Then come the ends of its further steps, and the seconds of all."""
_LEAVES, _ARRIVES = range(2)
"""The times of a gradient: its transfer begins and ends."""
_BEGINS, _ENDS, _TAKES = range(3)
"""The times of a client's step, and its seconds."""


@dataclass(frozen=True, slots=True)
class _Draws:
    """Seconds of batches from ``first`` on: clients' activities, latencies (n, M); the server's (n, 1 + further)."""

    first: int
    kinds: Ints
    embed: Floats
    upload: Floats
    up: Floats
    down: Floats
    server: Floats


class InFlightRounds:
    """A round waits for all embeddings of its batch. Clients step ``steps`` times on each gradient, in their order.

    After each embedding a client steps on the gradients that are there, and waits for them while more than ``window``
    batches have none. Batch k is embedded after the steps on batch k - window - 1 at the earliest: it belongs to the
    consequences of that round. The acts have two operations for a step: the first is for the first step on a gradient
    of a client that has not stepped since it embedded the batch, the second for all others.
    """

    def __init__(self, world: TimedWorld, window: int, steps: int) -> None:
        self._world, self._window, self._steps = world, window, steps
        acts = [act for act in world.round if not isinstance(act, Activated)]
        self._trip = SingleTrip.of(tuple(acts[:6]))
        again, *further = acts[6:]
        assert isinstance(again, TimedWork)
        self._again, self._further = again, [act for act in further if isinstance(act, TimedService)]
        self._factors = np.array([self._trip.step.factors, again.factors])  # (2, kinds, M)
        self._flops = None if again.flops is None else np.array([self._trip.step.flops, again.flops])
        self._times = ClientTimes(world)
        clients, size = len(world.clients), window + 2
        self._columns = np.arange(clients)
        self._now, self._sent, self._server = np.zeros(clients), np.zeros(clients), 0.0
        self._taken = np.zeros(clients, np.int64)  # the gradients on which each client has stepped
        self._stepped = np.zeros((size, clients), np.int64)  # and had when it embedded a batch
        # Of the batches that may be in flight, by their number modulo the ring's size:
        self._of_server, self._gradients = np.zeros((size, 3 + 2 * len(self._further))), np.zeros((size, 2, clients))
        self._of_steps, self._anew = np.zeros((size, steps, 3, clients)), np.zeros((size, clients), np.int64)
        draws = self._draw(0, window + 1)
        embeds = np.empty((window + 1, 6, clients))
        for batch in range(window + 1):
            if batch:
                self._answer(batch - 1)
            embeds[batch] = self._embed(batch, draws)
            self._serve(batch, embeds[batch], draws)
        flat = [np.concatenate([*embeds[:, time]])[None] for time in range(6)]
        kinds, places = draws.kinds.repeat(clients), np.tile(self._columns, window + 1)
        up, of_first = self._trip.up.way, (kinds[None], places[None])
        self._before: tuple[Moves, ...] = (self._times.moves("up", up, flat[_MOVES], flat[_THERE], *of_first),)
        seconds = draws.embed.reshape(1, -1)
        self._spans: tuple[Stretches, ...] = ()
        if world.metered:
            self._spans = self._sending(flat, kinds[None], places[None], seconds, after=False)

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on.

        Raises ``UndecidedError`` if a gradient arrives as a client looks for it.
        """
        size, ahead = self._window + 2, self._window + 1
        draws = self._draw(first + ahead, count)
        embeds = np.empty((count, 6, len(self._columns)))
        server = np.empty((count, self._of_server.shape[1]))
        gradients, steps = np.empty((count, 2, len(self._columns))), np.empty((count, *self._of_steps.shape[1:]))
        anew = np.empty((count, len(self._columns)), np.int64)
        for k in range(count):
            self._answer(first + k + ahead - 1)
            here = (first + k) % size
            server[k], gradients[k] = self._of_server[here], self._gradients[here]
            steps[k], anew[k] = self._of_steps[here], self._anew[here]
            embeds[k] = self._embed(first + k + ahead, draws)
            self._serve(first + k + ahead, embeds[k], draws)
        kinds = self._world.kind_of(np.arange(first, first + count))
        places = np.broadcast_to(self._columns, anew.shape)
        of = embeds.swapaxes(0, 1)
        down = self._times.moves(
            "down", self._trip.down.way, gradients[:, _LEAVES], gradients[:, _ARRIVES], kinds[:, None], places
        )
        up = self._times.moves("up", self._trip.up.way, of[_MOVES], of[_THERE], draws.kinds[:, None], places)
        before, spans = ((), ()) if first else (self._before, self._spans)
        if self._world.metered:
            spans += self._sending([*of], draws.kinds[:, None], places, draws.embed, after=True)
            spans = (*spans, *self._receiving(kinds, server, gradients, steps, anew))
        return Chunk(
            first,
            server[:, _ENDED],
            server[:, _WAITED],
            None,
            steps[:, :, _ENDS],
            (),
            (down, up),
            self._world.fresh_ages(kinds),
            before=before,
            spans=spans,
        )

    def _draw(self, first: int, count: int) -> _Draws:
        """Draw what ``count`` batches from ``first`` on take."""
        trip, kinds = self._trip, self._world.kind_of(np.arange(first, first + count))

        def rows(draw: Draw) -> Floats:
            return draw.of(draw.series.rows(first, count))

        services = [act.seconds(act.draw.series.rows(first, count)[:, :, 0], kinds) for act in self._services]
        return _Draws(
            first,
            kinds,
            trip.embed.seconds(rows(trip.embed.draw), kinds),
            rows(trip.up.delay),
            rows(trip.up.way.latency),
            rows(trip.down.way.latency),
            np.concatenate(services, axis=1),
        )

    @property
    def _services(self) -> list[TimedService]:
        return [self._trip.serve, *self._further]

    # --- one batch ------------------------------------------------------------------------------------------------

    def _embed(self, batch: int, draws: _Draws) -> Floats:
        """Let all clients embed a batch, and send it; return the times (6, M)."""
        k, kind = batch - draws.first, int(draws.kinds[batch - draws.first])
        ready = self._times.activated(self._now, batch)
        embedded = ready + self._times.lasting(ready, draws.embed[k])
        self._stepped[batch % len(self._stepped)] = self._taken
        uploads = np.maximum(embedded, self._sent)  # uploads follow each other
        sent = uploads + self._times.lasting(uploads, draws.upload[k])
        moves = sent + draws.up[k]
        there = moves + self._times.moving("up", self._trip.up.way, kind, moves)
        self._sent, self._now = sent, embedded if self._window else sent
        return np.array([ready, embedded, uploads, sent, moves, there])

    def _serve(self, batch: int, embeds: Floats, draws: _Draws) -> None:
        """Let the server step on a batch, and send the gradients; then it takes its further steps."""
        k, kind, here = batch - draws.first, int(draws.kinds[batch - draws.first]), batch % len(self._of_server)
        now = waited = max(self._server, float(embeds[_THERE].max()))
        times = [waited]
        for seconds in draws.server[k].tolist():
            now += seconds
            times.append(now)
        self._of_server[here], self._server = [*times, *draws.server[k].tolist()], now
        leaves = draws.down[k] + times[_ENDED]
        self._gradients[here] = leaves, leaves + self._times.moving("down", self._trip.down.way, kind, leaves)

    def _answer(self, latest: int) -> None:
        """Let clients step, after the embedding of batch ``latest``, on gradients of the batches in flight."""
        size, stage = len(self._gradients), self._trip.step.draw.series.stage
        while True:
            taken, now, here = self._taken, self._now, self._taken % size
            arrives = self._gradients[here, _ARRIVES, self._columns]
            waiting = latest + 1 - taken
            forced = waiting > self._window
            if np.any((arrives == now) & (waiting > 0) & ~forced):
                place = int(np.flatnonzero((arrives == now) & (waiting > 0) & ~forced)[0])
                raise undecided("a gradient arrives as its client looks for it", int(taken[place]), float(now[place]))
            steps = (waiting > 0) & (forced | (arrives < now))
            if not steps.any():
                return
            now = np.where(steps, np.maximum(now, arrives), now)
            kinds = self._world.kind_of(taken)
            anew = (taken > self._stepped[here, self._columns]).astype(np.int64)
            self._anew[here[steps], self._columns[steps]] = anew[steps]
            for number in range(self._steps):
                which = anew if number == 0 else np.ones_like(anew)
                drawn = stage.take(taken * self._steps + number * steps)
                seconds = drawn * self._factors[which, kinds, self._columns]
                ends = np.where(steps, now + self._times.lasting(now, seconds, steps), now)
                times = np.array([now, ends, seconds])
                self._of_steps[here[steps], number, :, self._columns[steps]] = times[:, steps].T
                now = ends
            self._now, self._taken = now, taken + steps

    # --- what rounds leave ----------------------------------------------------------------------------------------

    def _sending(
        self, times: list[Floats], kinds: Ints, places: Ints, seconds: Floats, after: bool
    ) -> tuple[Stretches, ...]:
        """Return what clients do until they send embeddings."""
        flops = None if self._trip.embed.flops is None else self._trip.embed.flops[kinds, places]
        return (
            Stretches("compute", times[_READY], times[_EMBEDDED], places, flops, seconds, after),
            Stretches("radio", times[_UPLOADS], times[_SENT], places),
        )

    def _receiving(self, kinds: Ints, server: Floats, gradients: Floats, steps: Floats, anew: Ints) -> list[Stretches]:
        """Return what the server does from its step on, and clients with the gradients."""
        spans, count = list[Stretches](), 2 + len(self._further)
        for number, act in enumerate(self._services):
            began, ends, seconds = (server[:, [place + number]] for place in (0, 1, count))
            flops = of_kinds(act.flops, kinds)
            spans.append(Stretches("compute", began, ends, AT_SERVER, flops, seconds, after=number > 0))
        for number in range(self._steps):
            which = anew if number == 0 else np.ones_like(anew)
            flops = None if self._flops is None else self._flops[which, kinds[:, None], self._columns]
            began, ends, seconds = (steps[:, number, place] for place in (_BEGINS, _ENDS, _TAKES))
            spans.append(Stretches("compute", began, ends, self._columns, flops, seconds, after=True))
        return spans
