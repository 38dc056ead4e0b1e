"""How long what clients do lasts, by those who may pause and wait for activations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vflsim.recurrences.chunk import Bools, Direction, Moves, undecided
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Way
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats


class ClientTimes:
    """The durations of all clients' activities in a world; each array is of shape (M,)."""

    def __init__(self, world: TimedWorld) -> None:
        self._pauses, self._processes = world.pauses, world.activations()
        self._waiting = bool(world.pauses) or any(process is not None for process in self._processes)
        self._links = world.shared_links
        if self._links is not None and world.pauses:
            raise undecided("messages that share links stand aside while clients pause", 0, 0.0)
        self.now = Now(len(world.clients))
        """In which order messages enter links on which they wait."""

    def activated(self, now: Floats, round_: int) -> Floats:
        """Return when each client is active, and up. Raises ``UndecidedError`` if a client waits for ever."""
        return self._pauses.active(self._processes, now, round_) if self._waiting else now

    def lasting(self, now: Floats, seconds: Floats, whose: Bools | None = None) -> Floats:
        """Return how long work of ``seconds`` lasts from ``now`` on, for clients that ``whose`` selects (None: all)."""
        return self._pauses.lasting(now, seconds, whose) if self._pauses else seconds

    def moving(self, direction: Direction, way: Way, kind: int, began: Floats) -> Floats:
        """Return how long messages about a batch of a ``kind`` move from ``began`` on."""
        seconds: Floats = way.seconds[kind]
        return self._pauses.moving(direction, began, way.sizes[kind], seconds) if self._pauses else seconds

    def carried(self, direction: Direction, way: Way, kind: int, entered: Floats) -> tuple[Floats, Floats]:
        """Return when messages begin to move and end, at most one of each client in each direction at a time."""
        if self._links is None:
            return entered, entered + self.moving(direction, way, kind, entered)
        kinds, began = np.array([kind]), entered[None].copy()
        moves = Moves(direction, began, np.empty_like(began), way.sizes, way.sizes, way.rates)
        ends = self._links.carrying(moves, way, kinds, self.now)(0, kind)
        return began[0], ends

    def moves(self, direction: Direction, way: Way, began: Floats, ends: Floats, kinds: Ints, places: Ints) -> Moves:
        """Return transfers of any shape, of clients at ``places`` about batches of ``kinds``."""
        sizes, profiles = way.sizes[kinds, places], None
        if self._pauses:
            profiles = self._pauses.profiles(direction)[places]
        moves = Moves(direction, began, ends, sizes, sizes, way.rates[places], profiles=profiles, places=places)
        return moves if self._links is None else replace(moves, profiles=self._links.shares(moves, way, kinds[:, 0]))
