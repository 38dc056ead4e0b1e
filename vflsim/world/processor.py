"""A party's processor: one computation at a time, first come, first served."""

from __future__ import annotations

from collections import deque

from vflsim.world.kernel import Signal, World


class Processor:
    """Invariant: at most one holder; an abandoned wait or computation frees its place at once."""

    __slots__ = ("_queue", "_world", "busy")

    def __init__(self, world: World) -> None:
        self._world = world
        self.busy = False
        self._queue: deque[Signal] = deque()

    async def free(self) -> None:
        """Wait until it is handed over: it is not released in between, so nobody else can take it."""
        signal = self._world.signal("its processor")
        self._queue.append(signal)
        try:
            await signal
        except BaseException:
            if signal.done:  # handed over in the very instant in which the wait was abandoned
                self.release()
            else:
                self._queue.remove(signal)
            raise

    def release(self) -> None:
        """Hand the processor to the next in line."""
        if self._queue:
            self._queue.popleft().set()
        else:
            self.busy = False
