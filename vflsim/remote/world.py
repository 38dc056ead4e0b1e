"""The world of one party in a process of its own."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from vflsim.learning.execution.executor import ImmediateExecutor
from vflsim.learning.execution.operations import Operation
from vflsim.world.realtime import RealTimeWorld

_RECENT = 20
"""Of so many earlier computations of a kind the longest decides how early the next begins."""


class _Precise(selectors.EpollSelector):
    """Waits to the microsecond: ``epoll`` itself rounds up to milliseconds, which add up over a round."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files to be ready, at most ``timeout`` seconds."""
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop whose timers are as exact as the machine allows."""
    return asyncio.SelectorEventLoop(_Precise())


class LiveWorld(RealTimeWorld):
    """A real-time world whose clock starts when the run does, and to which messages come from elsewhere.

    Invariants of ``RealTimeWorld``, but it never finds a deadlock: as long as connections last, something may come.
    A computation begins so early that it ends when its drawn time is over, as far as earlier ones tell: not at once,
    since abandoned work must not run. ``on_finish(reason)`` is called once, within the event that ends the run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(ImmediateExecutor(), loop=loop)
        self._live = 1  # the connections
        self.on_finish: Callable[[str], None] | None = None
        self._running = False
        self._early: list[Callable[[], object]] = []
        self._took: dict[str, deque[float]] = {}

    @override
    def until_work(self, operation: Operation[Any], seconds: float) -> float:
        took = self._took.get(operation.kind)
        return max(0.0, seconds - max(took)) if took else seconds

    @override
    async def perform(self, operation: Operation[Any]) -> None:
        began = self.now()
        await super().perform(operation)
        ended = self.now()
        self._took.setdefault(operation.kind, deque(maxlen=_RECENT)).append(ended - began)
        if operation.at is not None and operation.at[1] > ended:
            await self.pause(operation.at[1] - ended, "its computation to end")

    def deliver(self, call: Callable[[], object]) -> None:
        """Make a call as an event of this world, from within the loop; before the run, as soon as it runs."""
        if self._running:
            self._dispatch(call)
        else:
            self._early.append(call)

    def begin_at(self, at: float, begin: Callable[[], None]) -> None:
        """Set the clock to 0 at the loop's time ``at``, and call ``begin`` then."""

        def started() -> None:
            self._start = at
            self.instant = self.now()
            begin()

        self._loop.call_at(at, self._dispatch, started)

    @override
    def finish(self, reason: str) -> None:
        first = not self.over
        super().finish(reason)
        if first and self.on_finish is not None:
            self.on_finish(reason)

    @override
    def _advance(self) -> None:
        self._running = True
        early, self._early = self._early, []
        for call in early:
            self._loop.call_soon(self._dispatch, call)
        super()._advance()
