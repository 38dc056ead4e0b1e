"""How long what clients do lasts, by those who may pause and wait for activations."""

from __future__ import annotations

from vflsim.recurrences.chunk import Bools, Direction, Moves
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Way
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.delays.base import Floats


class ClientTimes:
    """The durations of all clients' activities in a world; each array is of shape (M,)."""

    def __init__(self, world: TimedWorld) -> None:
        self._pauses, self._processes = world.pauses, world.activations()
        self._waiting = bool(world.pauses) or any(process is not None for process in self._processes)

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

    def moves(self, direction: Direction, way: Way, began: Floats, ends: Floats, kinds: Ints, places: Ints) -> Moves:
        """Return transfers of any shape, of clients at ``places`` about batches of ``kinds``."""
        sizes, profiles = way.sizes[kinds, places], None
        if self._pauses:
            profiles = self._pauses.profiles(direction)[places]
        return Moves(direction, began, ends, sizes, sizes, way.rates[places], profiles=profiles, places=places)
