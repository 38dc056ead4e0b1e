"""Clients at their own pace whose messages share the server's links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count as numbers

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vflsim.recurrences.chunk import Chunk, Direction, Moves, undecided
from vflsim.recurrences.cycles import STEP
from vflsim.recurrences.own_pace import OwnPace, Served, running_times
from vflsim.recurrences.paced_links import ACTIVE, ARRIVED, HEARD, LEFT, SENT, FairLink, PacedLinks
from vflsim.recurrences.shared_links import shares_of
from vflsim.recurrences.trail import Now
from vflsim.streams import BLOCK
from vflsim.timing.floats import Floats


class SharedPace(OwnPace):
    """``OwnPace`` whose cycles have no times of their own: a message takes as long as the others let it."""

    _links: PacedLinks
    _latest = 0.0

    @override
    def _first_messages(self, now: Now, before: tuple[Moves, ...]) -> tuple[Moves, ...]:
        world, trip, taken = self._world, self._trip, self._cycles.first()
        shared, clients = world.shared_links, len(world.clients)
        assert shared is not None, "messages share links"
        if self._pauses:
            raise undecided("messages that share links stand aside while clients pause", 0, 0.0)
        per_epoch, drawn = world.sequence.per_epoch, self._all_drawn()
        sizes = list(zip(trip.down.way.sizes.tolist(), trip.up.way.sizes.tolist(), strict=True))
        self._links = links = PacedLinks(
            shared,
            self._t,
            self._next,
            self._waits if self._processes else None,
            lambda used: next(drawn) * self._unit(used),
            lambda number: sizes[number % per_epoch == per_epoch - 1],
        )
        self._shares: dict[Direction, NDArray[np.object_]] = {}
        if isinstance(links.down, FairLink) and isinstance(links.up, FairLink):
            self._shares = {"down": shares_of(links.down.moved, clients), "up": shares_of(links.up.moved, clients)}
        for moves in before:
            entered = moves.began[0].tolist()
            causes = [now.sending.causes(place, time) for place, time in enumerate(entered)]
            links.fill(entered, moves.sizes[0].tolist(), causes)
        ready = now.clients.tolist()
        causes = [now.sending.causes(place, time) for place, time in enumerate(ready)]
        links.begin(ready, taken.tolist(), causes)
        cycles, _ = links.cycles(clients)
        if self._processes:
            ready = running_times(now.clients, cycles[:, ACTIVE:SENT])[:, -1]
        times = running_times(np.asarray(ready), taken)
        times[:, -1] = cycles[:, ARRIVED]
        filled = links.filled()[None]
        began, ends, shares = filled[..., SENT], filled[..., ARRIVED], self._profiles("up")
        sent = [replace(moves, began=began, ends=ends, profiles=shares) for moves in before]
        return (*sent, self._first_embeddings(times, taken, cycles[:, SENT]))

    def _all_drawn(self) -> Iterator[float]:
        for first in numbers(step=BLOCK):
            yield from self._drawn(first, BLOCK)

    @override
    def _profiles(self, direction: Direction) -> NDArray[np.object_] | None:
        return self._shares.get(direction)

    @override
    def advance(self, first: int, count: int) -> Chunk:
        links = self._links
        for link in (links.down, links.up):
            link.forget(self._latest)
        cycles, places = links.cycles(count * self._t)
        waited, ends, seconds = links.steps(count).T.tolist()
        self._latest = ends[-1]
        waits = cycles[:, ACTIVE:SENT].tolist() if self._processes else []
        return self._chunk(first, count, Served(places.tolist(), waited, ends, seconds, waits, shared=cycles))

    @override
    def _cycle_times(self, served: Served, ends: Floats, taken: Floats) -> tuple[Floats, Floats, Floats]:
        cycles = served.shared
        assert cycles is not None, "they have been played"
        back, out = running_times(ends, taken[:, :1]), running_times(cycles[:, HEARD], taken[:, STEP:-1])
        return np.concatenate([back, out, cycles[:, ARRIVED:]], axis=1), cycles[:, LEFT], cycles[:, SENT]
