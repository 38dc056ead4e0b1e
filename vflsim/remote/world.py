"""The world of one party in a process of its own, and its clocks."""

from __future__ import annotations

import asyncio
import math
import select
import selectors
import statistics
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from vflsim.protocol import Operation
from vflsim.worlds import STANDSTILL, ImmediateExecutor, KeptValue, RealTimeWorld, stuck

MOST_BEHIND_S = 0.1
"""Seconds that events may happen after they were due before the schedule slips."""


_EARLY_S = 1e-6
"""Seconds by which a timer may come before it is due: the loop's clock has fewer digits than an instant."""


_EVENTS_KEPT = 200_000


_RECENT = 20
"""Of so many earlier computations of a kind the longest decides how early the next begins."""


class _Precise(selectors.DefaultSelector):
    """Waits to the microsecond: ``epoll`` itself rounds up to milliseconds, which add up over a round."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files to be ready, at most ``timeout`` seconds."""
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop whose timers are as exact as the machine allows."""
    return asyncio.SelectorEventLoop(_Precise() if hasattr(selectors, "EpollSelector") else None)


def timer_lateness(times: int = 50, seconds: float = 0.001) -> tuple[float, float]:
    """Return by how much timers of ``seconds`` fire late on this machine (s): the median and the greatest of some."""
    loop = precise_loop()

    async def late() -> float:
        fired: asyncio.Future[float] = loop.create_future()
        due = loop.time() + seconds
        loop.call_at(due, lambda: fired.set_result(loop.time() - due))
        return await fired

    try:
        measured = [loop.run_until_complete(late()) for _ in range(times)]
    finally:
        loop.close()
    return statistics.median(measured), max(measured)


class _Timed(ImmediateExecutor):
    """Notes how long the latest operation took (s): a party's operations run one after the other.

    It computes lazy values with their operation, unless they are computed when they are sent.
    """

    took = 0.0

    @override
    def submit(self, operation: Operation[Any]) -> None:
        began = time.monotonic()
        super().submit(operation)
        for handle in operation.promises:
            if handle.computed and isinstance(value := handle.value, KeptValue) and value.at_once:
                handle.set(value.on_wire())
        self.took = time.monotonic() - began


class LiveWorld(RealTimeWorld):
    """A real-time world whose clock starts when the run does, and to which messages come from elsewhere.

    Its clock is a schedule: within an event, ``now()`` is when the event was due, so that lateness of timers and of
    messages does not add up from wait to wait. ``really`` tells when it happened.

    Invariants: those of ``RealTimeWorld``, but it never finds a deadlock, since something may come as long as
    connections last. An event and all that it causes at its instant happen before the next one. The schedule never goes
    back, is never ahead of real time, and at most ``MOST_BEHIND_S`` behind it: beyond that it slips. A computation
    begins so early that it ends when its drawn time is over, as far as earlier ones tell: not at once, since abandoned
    work must not run. If it takes longer, the schedule waits for it. Where nothing is ``emulated``, the schedule is
    real time. ``on_finish(reason)`` is called once, within the event that ends the run; ``on_leftover(operation)`` for
    a computation that has run although the run ended before its time was over. A computation that would end after
    ``crash_at()``, the instant of the next crash, does not begin.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, emulated: bool = True) -> None:
        self._timed = _Timed()
        super().__init__(self._timed, loop=loop)
        self._most_behind = MOST_BEHIND_S if emulated else 0.0
        self._live = 1  # the connections
        self.on_finish: Callable[[str], None] | None = None
        self.on_leftover: Callable[[Operation[Any]], None] | None = None
        self.crash_at: Callable[[], float] | None = None
        self.slipped_s = 0.0
        """By how much the schedule has slipped in all, because the machine could not follow it (s)."""
        self._running = False
        self._soon: deque[Callable[[], object]] = deque()
        self._at_end: deque[Callable[[], object]] = deque()
        self._early: list[tuple[Callable[[], object], float]] = []
        self._took: dict[str, deque[float]] = {}
        self._working: Operation[Any] | None = None  # the latest computation that takes time of the run
        self._latest = 0.0  # the instant of the latest event
        self._instants, self._real = array("d"), array("d")  # of the latest events: when due, when they happened (s)

    @override
    def until_work(self, operation: Operation[Any], seconds: float) -> float:
        self._working = operation
        took = self._took.get(operation.kind)
        if self.crash_at is not None and operation.at is not None and operation.at[1] > self.crash_at():
            return seconds
        return max(0.0, seconds - max(took)) if took else seconds

    @override
    async def perform(self, operation: Operation[Any]) -> None:
        began = self.now()
        await super().perform(operation)
        if operation is not self._working or operation.at is None:
            return  # it takes no time of the run
        took = self._timed.took  # without a wait for the thread, which may have been evaluating
        self._took.setdefault(operation.kind, deque(maxlen=_RECENT)).append(took)
        try:
            await self.pause(max(operation.at[1], began + took) - self.now(), "its computation to end")
        except BaseException:
            self.ran_unseen(operation)
            raise

    @override
    def ran_unseen(self, operation: Operation[Any]) -> None:
        if self.over and operation is self._working and self.on_leftover is not None:
            self.on_leftover(operation)

    def deliver(self, call: Callable[[], object], at: float = 0.0) -> None:
        """Make a call as an event of this world, from within the loop; before the run, as soon as it runs.

        ``at``: when it was due (s); by default it is no event of the schedule, and happens at the latest one's instant.
        """
        if self._running:
            self._dispatch(call, at)
        else:
            self._early.append((call, at))

    @override
    def soon(self, callback: Callable[[], object]) -> None:
        if self._turn is None:
            super().soon(callback)
        else:
            self._soon.append(callback)

    @override
    def at_end(self, callback: Callable[[], object]) -> None:
        if self._turn is None:
            super().at_end(callback)
        else:
            self._at_end.append(callback)

    @override
    def _dispatch(self, call: Callable[[], object], due: float | None = None) -> None:
        super()._dispatch(partial(self._to_its_end, call), due)

    def _to_its_end(self, call: Callable[[], object]) -> None:
        """Make a call and all that it causes at its instant, before anything else happens."""
        call()
        steps = 0
        while not self._halted and (self._soon or self._at_end):
            (self._soon or self._at_end).popleft()()
            if (steps := steps + 1) > STANDSTILL:
                raise stuck(STANDSTILL)
        while self._soon or self._at_end:  # the run has ended: left to its conclusion
            self._loop.call_soon(self._dispatch, (self._soon or self._at_end).popleft())

    def begin_at(self, at: float, begin: Callable[[], None], since: float = 0.0) -> None:
        """Set the clock to 0 at the loop's time ``at``, and call ``begin`` then, or ``since`` (s) after it."""

        def started() -> None:
            self._start, self._turn = at, at + since
            self.instant = self._latest = since
            self.slipped_s = 0.0
            self._instants, self._real = array("d", [since]), array("d", [self._loop.time() - at])
            begin()

        self._loop.call_at(at + since, self._dispatch, started, since)

    def really(self, instant: float) -> float:
        """Return when the latest event of a recent instant happened, in seconds since the start."""
        place = bisect_right(self._instants, instant) - 1
        return instant if place < 0 else self._real[place] + (instant - self._instants[place])

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
        for call, at in early:
            self._loop.call_soon(self.deliver, call, at)
        super()._advance()

    @override
    def now(self) -> float:
        """Return the schedule's time within an event, to the last bit: no sum with the loop's time rounds it."""
        return super().now() if self._turn is None or self._stopped is not None else self._latest

    @override
    def _time_of_turn(self, due: float | None) -> float:
        if self._start is None:  # before the clock's 0
            return self._loop.time()
        real = self._loop.time() - self._start
        scheduled = max(self._latest, 0.0 if due is None else min(due, real + _EARLY_S))
        if due is not None and due < self._latest:  # it comes after what was due later: no two come at one instant
            scheduled = math.nextafter(scheduled, math.inf)
        if real - scheduled > self._most_behind:
            self.slipped_s += real - self._most_behind - scheduled
            scheduled = real - self._most_behind
        self._latest = scheduled
        if self._instants and not self.over:  # the run has begun, and has not ended
            if len(self._instants) > _EVENTS_KEPT:
                del self._instants[: _EVENTS_KEPT // 2], self._real[: _EVENTS_KEPT // 2]
            self._instants.append(scheduled)
            self._real.append(real)
        return self._start + scheduled


@cache
def machine() -> str:
    """Return the name of this start of this machine, on which the monotonic clock is one; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def warm_up() -> None:
    """Do once what the first step would do for the first time: PyTorch's optimisers import their compiler, say."""
    weight = torch.nn.Parameter(torch.zeros(1))
    torch.autograd.backward([weight.square().sum()])
    torch.optim.SGD([weight], lr=0.1).step()
