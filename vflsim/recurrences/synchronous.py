"""Rounds in which the server waits for all clients; and the reference, in which only the server's work takes time."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.chunk import Ages, Chunk, Moves
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.base import Floats


class SynchronousRounds:
    """Rounds: embed, upload delay, latency, transfer; server step after the slowest; latency, transfer, client steps.

    The server may take further steps, which the next round waits for.
    """

    def __init__(self, world: TimedWorld) -> None:
        self._world = world
        self._ready = np.zeros(len(world.clients))
        self._free = 0.0

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on."""
        world = self._world
        kinds = world.kind_of(np.arange(first, first + count))
        server, further = world.server_seconds(first, kinds).tolist(), world.further_seconds(first, kinds).tolist()
        embed, step = world.embed.rows(first, kinds), world.steps.rows(first, kinds)
        upload = world.upload.rows(first, count)
        there, back = world.up.latency.rows(first, count), world.down.latency.rows(first, count)
        up_seconds, down_seconds = world.up.seconds, world.down.seconds
        shape, each = (count, len(world.clients)), world.steps.count
        up_began, up_ends, down_began, down_ends = (np.empty(shape) for _ in range(4))
        steps = np.empty((count, each, shape[1]))
        waited, ends = np.empty(count), np.empty(count)
        ready, t = self._ready, np.empty(len(world.clients))
        for k, kind in enumerate(kinds.tolist()):
            np.add(ready, embed[k], out=t)
            np.add(t, upload[k], out=t)
            np.add(t, there[k], out=up_began[k])
            np.add(up_began[k], up_seconds[kind], out=up_ends[k])
            arrived = max(up_ends[k].max(), self._free)
            waited[k] = arrived
            ends[k] = end = arrived + server[k]
            np.add(back[k], end, out=down_began[k])
            np.add(down_began[k], down_seconds[kind], out=down_ends[k])
            ready = down_ends[k]
            for j in range(each):
                np.add(ready, step[k, j], out=steps[k, j])
                ready = steps[k, j]
            for seconds in further[k]:
                end += seconds
            self._free = float(end)
        self._ready = ready.copy()
        up, down = world.up.sizes[kinds], world.down.sizes[kinds]
        return Chunk(
            first,
            ends,
            waited,
            None,
            steps[:, 0] if each == 1 else steps,
            Moves(up_began, up_ends, up, up, world.up.rates),
            Moves(down_began, down_ends, down, down, world.down.rates),
            fresh(world, kinds),
            ordered=True,
        )


class ServerSteps:
    """Consecutive server steps; client steps and messages take no time."""

    def __init__(self, world: TimedWorld) -> None:
        self._world = world
        self._now = 0.0

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on."""
        kinds = self._world.kind_of(np.arange(first, first + count))
        ends = running(self._now, self._world.server_seconds(first, kinds))
        self._now = float(ends[-1])
        steps = np.broadcast_to(ends[:, None], (count, len(self._world.clients)))
        return Chunk(first, ends, ends, None, steps, None, None, fresh(self._world, kinds), ordered=True)


def running(start: float, seconds: Floats) -> Floats:
    """Return the running sums of ``start`` and ``seconds`` (n,), added one by one from the left."""
    sums: Floats = np.add.accumulate(np.concatenate([[start], seconds]))
    return sums[1:]


def fresh(world: TimedWorld, kinds: Ints) -> Ages:
    """Return the ages of rounds that use fresh embeddings of all clients: 0."""
    nothing, clients = np.zeros(len(kinds), np.int64), np.full(len(kinds), len(world.clients))
    return Ages((nothing, clients * world.lengths(kinds), nothing), (nothing, clients, nothing))
