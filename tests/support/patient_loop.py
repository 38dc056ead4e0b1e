"""Real time whose clock waits for the machine: what is due comes in its order, however loaded the machine is."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from vflsim.learning.execution.operations import Executor, Operation
from vflsim.world.realtime import RealTimeWorld


class _Waiting(selectors.BaseSelector):
    """Moves the clock of its loop instead of waiting for it; while threads compute, it waits for them."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now, self.computing = 0.0, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        waits = timeout is None or (timeout > 0 and self.computing)
        ready = self._real.select(None if waits else 0)
        if not ready and timeout:
            self.now += timeout
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop of ``asyncio`` with a clock of its own."""

    def __init__(self) -> None:
        self.waiting = _Waiting()
        super().__init__(self.waiting)

    def time(self) -> float:
        """Seconds since the start."""
        return self.waiting.now


class PatientWorld(RealTimeWorld):
    """Real time, with threads for computations, on a ``PatientLoop``: computations take their drawn time alone."""

    def __init__(self, executor: Executor, speed: float = 1.0) -> None:
        self.loop = PatientLoop()
        super().__init__(executor, speed, self.loop)

    def pass_time(self, seconds: float) -> None:
        """Let so many simulated seconds pass, as a machine does that is busy elsewhere."""
        self.loop.waiting.now += seconds / self.speed

    async def perform(self, operation: Operation[Any]) -> None:
        self.loop.waiting.computing += 1
        try:
            await super().perform(operation)
        finally:
            self.loop.waiting.computing -= 1

    def close(self) -> None:
        super().close()
        self.loop.close()
