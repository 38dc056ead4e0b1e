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
        """Return when each client is active, and up; the waits are added one by one, as on the event path.

        Raises ``UndecidedError``, which names the round, if a client waits for ever.
        """
        if not self._waiting:
            return now
        times = now.copy()
        for place, process in enumerate(self._processes):
            if process is not None or place in self._pauses.gates:
                for wait in self._pauses.activated(place, process, float(times[place]), round_):
                    times[place] += wait
        return times

    def lasting(self, now: Floats, seconds: Floats, whose: Bools | None = None) -> Floats:
        """Return how long work of ``seconds`` lasts from ``now`` on, for clients that ``whose`` selects (None: all)."""
        if not self._pauses:
            return seconds
        lasting = seconds.copy()
        for place in self._pauses.gates:
            if whose is None or whose[place]:
                lasting[place] = self._pauses.work(place, float(now[place]), float(seconds[place]))
        return lasting

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
