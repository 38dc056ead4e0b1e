"""Virtual time, on SimPy: the only module that imports it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from heapq import heappop
from typing import Any

import simpy

from vflsim.errors import StandstillError
from vflsim.learning.execution.executor import Executor
from vflsim.learning.execution.operations import Operation
from vflsim.world.kernel import NOTHING, Moment, Signal, World

EVENT = Moment.EVENT
STANDSTILL = 1_000_000
"""Events and verbs at one instant after which a run is declared stuck."""


class VirtualTimer:
    """A scheduled callback.

    SimPy cannot take an event back, so a cancelled one is passed over when its time comes.
    """

    __slots__ = ("_call", "_counts", "_world")

    def __init__(self, world: VirtualWorld, call: Callable[[], object], counts: bool) -> None:
        self._world, self._counts = world, counts
        self._call: Callable[[], object] | None = call
        world._live += counts

    def happen(self) -> None:
        """Make the call, unless it was cancelled."""
        call = self._call
        if call is not None:
            self._call = None
            self._world._live -= self._counts
            call()

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called."""
        if self._call is not None:
            self._call = None
            self._world._live -= self._counts


class Pause(Signal):
    """A wait for a time: one object is both the coroutine's signal and SimPy's event.

    The event resumes its waiter directly: a ``Moment.RESUME`` in between could find nothing else to run.
    """

    __slots__ = ("_seconds",)
    _world: VirtualWorld

    def __init__(self, world: VirtualWorld, seconds: float, about: str) -> None:
        self._world, self._seconds, self.about, self.done = world, seconds, about, False

    def happen(self) -> None:
        """Resume the waiter, unless the wait was abandoned."""
        if not self.done:
            self._waiter.step()  # type: ignore[union-attr]  # set when it began to wait

    def __await__(self) -> Generator[Signal, Any, None]:
        world = self._world
        world._calendar.schedule(self, EVENT, self._seconds)  # type: ignore[arg-type]
        world._live += 1
        try:
            yield self
        finally:
            world._live -= 1
            self.done = True


class Calendar(simpy.Environment):
    """SimPy's environment: its clock, and its queue of events by (time, priority, order of scheduling).

    Two things differ from SimPy. ``step`` calls the event itself instead of a list of callbacks, and ``holds`` looks at
    the priority of the next event, which SimPy does not publish. Both read SimPy's private fields. SimPy's ``Process``,
    ``Timeout`` and conditions are not used: their interrupts arrive later in the instant, where a message could
    overtake them, and a wait that they abandon stays behind. SimPy's own ``step`` with lists of callbacks, and all
    callbacks of an instant in its heap, give the same event table at 0.76 to 0.93 of the speed.
    """

    def step(self) -> None:
        """Take the next event from the queue and call it."""
        self._now, _, _, event = heappop(self._queue)
        event.happen()  # type: ignore[attr-defined]

    def holds(self, before: Moment) -> bool:
        """Whether something is still to happen in this instant, at an earlier moment than ``before``."""
        return bool(self._queue) and self._queue[0][:2] < (self._now, before)


class VirtualWorld(World):
    """Runs coroutines in virtual time. Invariants of ``World``; besides, the same inputs give the same event order."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._calendar = Calendar()
        # Callbacks of this instant stay out of SimPy's heap: those that come first in it, and those that end it.
        self._soon: deque[Callable[[], object]] = deque()
        self._at_end: deque[Callable[[], object]] = deque()
        self._still = 0  # events and verbs since the clock last moved
        self._visitor: Callable[[], object] | None = None
        self._visit_after = 0

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._calendar._now

    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> VirtualTimer:
        """Call ``callback`` in ``delay`` virtual seconds."""
        timer = VirtualTimer(self, callback, not observer)
        self._calendar.schedule(timer, moment, delay)  # type: ignore[arg-type]
        return timer

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` before all other callbacks of this instant."""
        self._soon.append(callback)

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` as this instant ends."""
        self._at_end.append(callback)

    def pause(self, seconds: float, about: str) -> Awaitable[None]:
        """Let ``seconds`` pass."""
        return Pause(self, seconds, about) if seconds > 0 else NOTHING

    def perform(self, operation: Operation[Any]) -> None:
        """Queue the operation."""
        self.executor.submit(operation)

    def breathe(self) -> None:
        """Yield to nobody, but count: a coroutine whose verbs take no time makes no events."""
        self._still += 1
        if self._still > STANDSTILL:
            raise _stuck()

    def visit(self, visitor: Callable[[], object], after: int = 0) -> None:
        """Call ``visitor`` between two events, once: when ``after`` have happened, or else as soon as may be.

        May be called from any thread and from a signal handler; replaces a visitor who has not been yet. Nobody comes
        once the run has ended.
        """
        self._visit_after, self._visitor = after, visitor
        self._halted = True  # so that the loop over events looks up

    def _advance(self) -> None:
        while not self._has_ended():
            self._halted = False  # before looking for a visitor: one who comes in between sets it again
            visitor = self._visitor
            if visitor is None:
                self._deal_with_events(sys.maxsize)
            elif self.events < self._visit_after:
                self._deal_with_events(self._visit_after)
            else:
                self._visitor = None
                visitor()
        self._raise_failure()

    def _deal_with_events(self, until: int) -> None:
        """Handle events until ``_halted``, or until the count of events is ``until``."""
        calendar, soon, at_end = self._calendar, self._soon, self._at_end
        first = self.events + 1
        for self.events in range(first, until + 1):
            self._still += 1
            if soon:
                soon.popleft()()
            elif at_end and not calendar.holds(Moment.COLLECT):
                at_end.popleft()()
            elif self._live or at_end:
                now = calendar._now
                calendar.step()
                if calendar._now != now:
                    self._still = 0
            else:
                raise self._deadlock()
            if self._still > STANDSTILL:
                self.fail(_stuck(), "the world")
            if self._halted:
                break


def _stuck() -> StandstillError:
    return StandstillError(
        f"{STANDSTILL} events without the clock moving: the protocol loops without any time passing",
        allowed="something in every loop that takes time: compute, a link, a delay",
        remedy="give the server a compute time, or limit the run with stop: {rounds: …}",
    )
