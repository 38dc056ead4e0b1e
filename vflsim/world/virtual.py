"""Virtual time, on SimPy: the only module that imports it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Any

import simpy

from vflsim.learning.execution.operations import Executor, Operation
from vflsim.world.kernel import E, Moment, World
from vflsim.world.task import NOTHING, STANDSTILL, Awaits, Signal, Task, stuck

EVENT, COLLECT = Moment.EVENT, Moment.COLLECT
_NEVER = 2**62
"""A number of events that no run has; ``range`` counts up to it without integers of arbitrary size."""


class VirtualTimer:
    """A scheduled callback."""

    __slots__ = ("_call", "_due", "_observes", "_world")

    def __init__(self, world: VirtualWorld, call: Callable[[], object], observes: bool) -> None:
        self._world, self._call, self._observes = world, call, observes
        self._due = True
        world._idle += observes

    def ring(self) -> None:
        """Make the call."""
        self._due = False
        self._world._idle -= self._observes
        self._call()

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called."""
        if self._due:
            self._due = False
            self._world._idle -= self._observes
            self._world.cancel(self)


class Pause(Signal):
    """A task's wait for a time: one object is both the coroutine's signal and SimPy's event.

    The event resumes its waiter directly: a ``Moment.RESUME`` in between could find nothing else to run. A task waits
    for one time after the other, so it has one pause, which it uses again unless it was abandoned.
    """

    __slots__ = ("ends",)

    def __init__(self, world: World, task: Task) -> None:
        super().__init__(world)
        self.ends = task.step
        """What to call when the time is over."""

    def forsake(self) -> None:
        """Stay in SimPy's queue, where nothing resumes the waiter any more."""
        self._world.cancel(self)
        self._waiter.pause = None  # type: ignore[union-attr]  # set when it began to wait


class Calendar(simpy.Environment):
    """SimPy's environment: its clock, and its queue of events by (time, priority, order of scheduling).

    The world puts events into the queue and takes them out itself, and looks at the time and the priority of the next
    one, which SimPy does not publish: it reads SimPy's private fields. Instead of an event's list of callbacks, an
    entry has one function: (time, priority, number, function, event). SimPy's ``Process``, ``Timeout`` and conditions
    are not used: their interrupts arrive later in the instant, where a message could overtake them, and a wait that
    they abandon stays behind.
    """


class VirtualWorld(World):
    """Runs coroutines in virtual time. Invariants of ``World``; besides, the same inputs give the same event order."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._calendar = Calendar()
        self._queue: list[tuple[float, int, int, Callable[[Any], object], Any]]
        self._queue = self._calendar._queue  # type: ignore[assignment]
        self._number = self._calendar._eid
        self._cancelled = set[object]()  # events in the queue
        self._idle = 0  # events in the queue that were cancelled, or are an observer's
        # Callbacks of this instant stay out of SimPy's heap: those that come first in it, and those that end it.
        self._soon: deque[Callable[[], object]] = deque()
        self._at_end: deque[Callable[[], object]] = deque()
        # As the methods below, which cost a call more:
        self.soon = self._soon.append  # type: ignore[assignment,method-assign]
        self.at_end = self._at_end.append  # type: ignore[assignment,method-assign]
        self._still = 0  # events and verbs since the clock last moved
        self._visitor: Callable[[], object] | None = None
        self._visit_after = 0

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.instant

    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> VirtualTimer:
        """Call ``callback`` in ``delay`` virtual seconds."""
        timer = VirtualTimer(self, callback, observer)
        heappush(self._queue, (self.instant + delay, moment, next(self._number), VirtualTimer.ring, timer))
        return timer

    def at(self, when: float, callback: Callable[[], object]) -> VirtualTimer:
        """Call ``callback`` at the instant ``when``, to the last bit."""
        timer = VirtualTimer(self, callback, False)
        heappush(self._queue, (when, EVENT, next(self._number), VirtualTimer.ring, timer))
        return timer

    def schedule(self, seconds: float, then: Callable[[E], object], event: E) -> None:
        """Call ``then(event)`` in ``seconds``."""
        heappush(self._queue, (self.instant + seconds, EVENT, next(self._number), then, event))

    def cancel(self, event: object) -> None:
        """Have a scheduled ``event`` not happen. SimPy cannot take it back: it is passed over when its time comes."""
        self._cancelled.add(event)
        self._idle += 1

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` before all other callbacks of this instant."""
        self._soon.append(callback)

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` as this instant ends."""
        self._at_end.append(callback)

    def pause(self, seconds: float, about: str) -> Awaitable[None]:
        """Let ``seconds`` pass."""
        if not seconds > 0.0:
            self.stand_still()
            return NOTHING
        task = self.running or self.current()
        awaitable = task.pause
        if awaitable is None:
            awaitable = task.pause = Awaits((Pause(self, task),))
        pause: Pause = awaitable[0]
        pause.about = about
        heappush(self._queue, (self.instant + seconds, EVENT, next(self._number), pause.ends, pause))
        return awaitable  # type: ignore[no-any-return]

    def perform(self, operation: Operation[Any]) -> None:
        """Queue the operation."""
        self.executor.submit(operation)

    def stand_still(self) -> None:
        """Count: a coroutine whose verbs take no time makes no events."""
        self._still += 1
        if self._still > STANDSTILL:
            raise stuck(STANDSTILL)

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
                self._deal_with_events(_NEVER)
            elif self.events < self._visit_after:
                self._deal_with_events(self._visit_after)
            else:
                self._visitor = None
                visitor()
        self._raise_failure()

    def _deal_with_events(self, until: int) -> None:
        """Handle events until ``_halted``, or until the count of events is ``until``."""
        calendar, queue, soon, at_end = self._calendar, self._queue, self._soon, self._at_end
        cancelled = self._cancelled
        first = self.events + 1
        for self.events in range(first, until + 1):
            if soon:
                self._still += 1
                soon.popleft()()
            elif at_end and not (queue and queue[0][0] == self.instant and queue[0][1] < COLLECT):
                self._still += 1
                at_end.popleft()()
            elif len(queue) > self._idle or at_end:
                instant, _, _, then, event = heappop(queue)
                if instant != self.instant:
                    self.instant = calendar._now = instant
                    self._still = 0
                else:
                    self._still += 1
                if cancelled and event in cancelled:
                    cancelled.remove(event)
                    self._idle -= 1
                else:
                    then(event)
            else:
                raise self._deadlock()
            if self._still > STANDSTILL:
                self.fail(stuck(STANDSTILL), "the world")
            if self._halted:
                break
