"""The times of clients that go through their acts at their own pace, drawn in blocks, client by client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Stretches
from vflsim.recurrences.stages import Ints, Source
from vflsim.recurrences.timed_acts import Draw, SingleTrip
from vflsim.recurrences.world import TimedWorld
from vflsim.streams import BLOCK
from vflsim.timing.floats import Floats

BACK, RETURN, STEP, EMBED, UPLOAD, THERE, TRANSFER = range(7)
"""The activities of a cycle, from a server step to the client's next arrival: the gradient's latency and transfer, the
client's step; then its embedding, upload delay, latency, and transfer."""
HOME = 3
"""How many of them come before the wait for an activation."""
ALL = 7
_DRAWS = 2**15
"""Most draws of all clients together that are kept for one activity; at least a block of each client."""
_TOGETHER = 16
"""Cycles that become Python's numbers together."""


class PacedCycles:
    """Every client's cycles: the seconds of all activities of each, in order, zeros included."""

    def __init__(self, world: TimedWorld, trip: SingleTrip) -> None:
        self._world = world
        clients = len(world.clients)
        self._together = max(1, min(4, _DRAWS // (clients * BLOCK))) * BLOCK
        # What draws an activity, or how long it lasts by the kind of its batch; and how many cycles it is ahead.
        self._draws: dict[int, tuple[Draw, Floats | None, int]] = {
            BACK: (trip.down.way.latency, None, 0),
            STEP: (trip.step.draw, trip.step.factors, 0),
            EMBED: (trip.embed.draw, trip.embed.factors, 1),
            UPLOAD: (trip.up.delay, None, 1),
            THERE: (trip.up.way.latency, None, 1),
        }
        self._transfers = {RETURN: (trip.down.way.seconds, 0), TRANSFER: (trip.up.way.seconds, 1)}
        self._drawn: list[list[Floats]] = [[] for _ in range(clients)]
        self._first = [0] * clients  # the cycle with which a client's first block in ``_drawn`` begins

    def first(self) -> Floats:
        """Return the seconds of all activities up to the first arrival, (M, 4)."""
        (kind,) = self._kinds(0, 1).tolist()
        columns = []
        for activity in range(HOME, ALL):
            if activity in self._transfers:
                columns.append(self._transfers[activity][0][kind])
                continue
            draw, factors, _ = self._draws[activity]
            drawn = draw.series.rows(0, 1)[0, draw.place]
            columns.append(drawn if factors is None else drawn * factors[kind])
        return np.stack(columns, axis=1)

    def of(self, client: int) -> Iterator[list[float]]:
        """Give the seconds of all activities, cycle after cycle, of the client at a place."""
        return chain.from_iterable(self._lists(client))

    def rows(self, client: int, start: int, count: int) -> Floats:
        """Return cycles ``start`` up to ``start + count`` of a client, which ``of`` has given, (count, 7).

        ``start`` may never decrease.
        """
        blocks = self._drawn[client]
        while start >= self._first[client] + len(blocks[0]):
            self._first[client] += len(blocks.pop(0))
        skip = start - self._first[client]
        joined = blocks[0] if skip + count <= len(blocks[0]) else np.concatenate(blocks)
        return joined[skip : skip + count]

    def _lists(self, client: int) -> Iterator[list[list[float]]]:
        start, count = 0, self._together
        streams = {
            activity: _Stream(*draw.series.stage.source(client), draw.series.skipped + draw.place + ahead, count)
            for activity, (draw, _, ahead) in self._draws.items()
        }
        while True:
            rows = np.empty((count, ALL))
            for activity, (seconds, ahead) in self._transfers.items():
                rows[:, activity] = self._by_kind(seconds[:, client], start + ahead)
            for activity, (_, factors, ahead) in self._draws.items():
                drawn = streams[activity].next()
                scale = 1.0 if factors is None else self._by_kind(factors[:, client], start + ahead)
                rows[:, activity] = drawn * scale
            self._drawn[client].append(rows)
            start += count
            for part in range(0, count, _TOGETHER):
                yield rows[part : part + _TOGETHER].tolist()

    def _by_kind(self, values: Floats, start: int) -> Floats | float:
        """Return the value (2,) of each cycle's batch, from a cycle on; a single number if they are equal."""
        if values[0] == values[1]:
            return float(values[0])
        chosen: Floats = values[self._kinds(start, self._together)]
        return chosen

    def _kinds(self, first: int, count: int) -> Ints:
        return self._world.kind_of(np.arange(first, first + count))


class _Stream:
    """Draws from ``start`` on, ``count`` at a time."""

    def __init__(self, constant: float, source: Source | None, start: int, count: int) -> None:
        self._constant, self._source, self._count = constant, source, count
        self._number, skip = divmod(start, BLOCK)
        self._rest: Floats = np.empty(0)
        if source is not None and skip:
            self._rest = source.blocks(self._number, 1)[skip:]
            self._number += 1

    def next(self) -> Floats | float:
        """Return the next draws, or the constant that they are."""
        if self._source is None:
            return self._constant
        blocks = self._count // BLOCK
        drawn = self._source.blocks(self._number, blocks)
        self._number += blocks
        if not len(self._rest):
            return drawn
        joined = np.concatenate([self._rest, drawn])
        self._rest = joined[self._count :]
        return joined[: self._count]


class PacedSpans:
    """The spans of cycles of a trip. ``kind_of`` gives the kind of batches by their numbers."""

    def __init__(self, trip: SingleTrip, kind_of: Callable[[Ints], Ints]) -> None:
        self._trip, self._kind_of = trip, kind_of

    def first(self, times: Floats, taken: Floats) -> tuple[Stretches, ...]:
        """Return those before the first round, of times (M, 5) and seconds (M, 4) of the activities up to arrivals."""
        places = np.arange(len(times))
        return self._out(times[None], taken[None], np.zeros((1, len(times)), np.int64), places, after=False)

    def server(self, waited: Floats, ends: Floats, seconds: list[float], flops: Floats | None) -> Stretches:
        """Return those of the server's steps (n,)."""
        of = None if flops is None else flops[:, None]
        return Stretches("compute", waited[:, None], ends[:, None], AT_SERVER, of, np.array(seconds)[:, None])

    def cycles(self, times: Floats, taken: Floats, numbers: Ints, places: Ints) -> tuple[Stretches, ...]:
        """Return those of cycles (n, t) by the step that they follow.

        ``times`` are when their activities begin, and the last ends; of ``taken`` seconds, the waits for activations
        are a part. ``numbers`` are those of the batches that they step on.
        """
        returned, stepped = (times[..., 1 + activity] for activity in (RETURN, STEP))
        flops = self._flops(self._trip.step.flops, numbers, places)
        step = Stretches("compute", returned, stepped, places, flops, taken[..., STEP], after=True)
        skip = times.shape[-1] - 5
        out = self._out(times[..., skip:], taken[..., skip:], numbers + 1, places, after=True)
        return step, *out

    def _out(self, times: Floats, taken: Floats, numbers: Ints, places: Ints, after: bool) -> tuple[Stretches, ...]:
        """Return what clients do from when they are ready on, with the batches of these numbers."""
        ready, embedded, uploaded = (times[..., place] for place in range(3))
        flops = self._flops(self._trip.embed.flops, numbers, places)
        return (
            Stretches("compute", ready, embedded, places, flops, taken[..., 0], after),
            Stretches("radio", embedded, uploaded, places),
        )

    def _flops(self, flops: Floats | None, numbers: Ints, places: Ints) -> Floats | None:
        return None if flops is None else flops[self._kind_of(numbers), places]
