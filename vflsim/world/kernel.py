"""What both worlds share: signals, tasks, and the course of a run. A world adds its clock."""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable
from enum import IntEnum
from typing import Any, Protocol

from vflsim.errors import RunError
from vflsim.learning.executor import Executor
from vflsim.learning.operations import Operation
from vflsim.world.failures import blame, deadlock, foreign


class Moment(IntEnum):
    """The order of things that happen at the same instant."""

    RESUME = 0  # a coroutine whose signal was set goes on
    EVENT = 1  # delays end, messages arrive
    TIMEOUT = 2  # a message beats a timeout
    COLLECT = 3  # receives resolve: (arrival time, party) order, whatever the order of arrival events
    OBSERVE = 4  # evaluation and stop rules see the instant as it ended


class Abandoned(BaseException):
    """Thrown into a coroutine whose work has become useless; caught by the ``until`` block it names.

    ``scope`` is ``None`` when the world closes. Not an ``Exception``: a protocol's ``except Exception`` may not eat it.
    """

    def __init__(self, scope: object | None = None) -> None:
        super().__init__(scope)
        self.scope = scope


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> None:
        """Make it never happen; nothing if it has."""


class Signal:
    """Something one coroutine waits for; it is set at most once. Awaiting it is all that a verb ever yields.

    ``about`` says, as text, what is waited for.
    """

    __slots__ = ("_value", "_waiter", "_world", "about", "done")

    def __init__(self, world: World, about: object = "something") -> None:
        self._world, self.about, self.done = world, about, False
        self._value: Any = None
        self._waiter: Task | None = None

    def set(self, value: Any = None) -> None:
        """Let the waiter go on with ``value``, later in this instant; nothing if set before."""
        if not self.done:
            self.done, self._value = True, value
            if self._waiter is not None:
                self._world.after(0.0, self._wake, Moment.RESUME)

    def _wake(self) -> None:
        task = self._waiter
        if task is not None and task.waiting is self:  # not if it was interrupted in between
            task.step(self._value)

    def __await__(self) -> Generator[Signal, Any, Any]:
        return self._value if self.done else (yield self)


class Task:
    """A coroutine that goes from signal to signal, in a context of its own (context variables do not leak).

    It is driven by its world's callbacks, not by ``simpy.Process`` or ``asyncio.Task``: their interrupts arrive later
    in the instant, where a message could overtake them; ``interrupt`` here abandons work at once, in both worlds alike.
    """

    __slots__ = ("_context", "_coroutine", "_world", "done", "observer", "party", "waiting", "who")

    def __init__(self, world: World, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool) -> None:
        self._world, self._coroutine = world, coroutine
        self._context = contextvars.copy_context()
        self.who, self.party, self.observer, self.done = who, party, observer, False
        self.waiting: Signal | None = None

    def begin(self) -> None:
        """Run up to the first wait, unless closed before."""
        if not self.done:
            self.step()

    def step(self, value: Any = None, error: BaseException | None = None) -> None:
        """Go on with ``value``, or with ``error`` thrown in, until the next wait."""
        outer = self._world.enter(self)
        self.waiting = None
        try:
            while True:
                if error is None:
                    waited = self._context.run(self._coroutine.send, value)
                else:
                    waited = self._context.run(self._coroutine.throw, error)
                if isinstance(waited, Signal):
                    waited._waiter, self.waiting = self, waited
                    return
                error = foreign(f"{type(waited).__module__}.{type(waited).__qualname__}")
        except (StopIteration, Abandoned):
            self._end()
        except BaseException as failure:
            self._end()
            self._world.fail(failure, self.who)
        finally:
            self._world.enter(outer)

    def interrupt(self, scope: object) -> None:
        """Throw ``Abandoned(scope)`` in, now, if it waits; one that runs meets its scope at its next verb."""
        if self.waiting is not None:
            self.step(error=Abandoned(scope))

    def close(self) -> None:
        """Abandon the coroutine; a ``finally`` that waits again is cut short."""
        if not self.done:
            self.step(error=Abandoned())
        if not self.done:
            self._end()
            self._coroutine.close()
        self._world.forget(self)  # even if an interrupt from outside cut its end short

    def _end(self) -> None:
        self.done, self.waiting = True, None
        self._world.forget(self)


class World(ABC):
    """A clock, and the tasks that run by it.

    Invariants: callbacks of one instant run in ``Moment`` order, ties in the order scheduled; a failed task ends the
    whole run, never silently; when nothing can happen any more the run ends with a ``DeadlockError``; after
    ``conclude``, or a run that failed, no coroutine is pending.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.over = False
        """Whether the run has ended: what is abandoned from then on was unfinished, not useless."""
        self.events = 0
        self._live = 0  # callbacks and computations to come that are not an observer's
        self._tasks: dict[Task, None] = {}  # a set that keeps its order
        self._current: Task | None = None
        self._failure: BaseException | None = None
        self._reason: str | None = None

    # --- the clock ------------------------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> float:
        """Seconds since the start."""

    @abstractmethod
    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> Timer:
        """Call ``callback`` in ``delay`` seconds. An ``observer``'s timer does not keep a deadlocked run alive."""

    @abstractmethod
    async def perform(self, operation: Operation[Any], seconds: float) -> None:
        """Let ``seconds`` pass for ``operation``, then hand it to the executor."""

    @abstractmethod
    async def breathe(self) -> None:
        """Called by every verb: in real time it yields to the loop; in virtual time it counts against standstill."""

    async def pause(self, seconds: float, about: str) -> None:
        """Let ``seconds`` pass."""
        if seconds > 0:
            signal = Signal(self, about)
            timer = self.after(seconds, signal.set)
            try:
                await signal
            finally:
                timer.cancel()

    # --- tasks ----------------------------------------------------------------------------------------------------

    def signal(self, about: object = "something") -> Signal:
        """A new signal; ``about`` tells, as text, what its waiter waits for."""
        return Signal(self, about)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool = False) -> Task:
        """Start ``coroutine`` at this instant; its failure ends the run. Observers survive ``finish``."""
        task = self._enlist(coroutine, who, party, observer)
        self.after(0.0, task.begin, Moment.RESUME)
        return task

    def _enlist(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool) -> Task:
        task = Task(self, coroutine, who, party, observer)
        self._tasks[task] = None
        return task

    def current(self) -> Task:
        """The task that runs right now. Raises ``RunError`` outside any."""
        if self._current is None:
            raise RunError("a verb was used outside a task of the world")
        return self._current

    def enter(self, task: Task | None) -> Task | None:
        """Make ``task`` the current one; returns the one before."""
        before, self._current = self._current, task
        return before

    def forget(self, task: Task) -> None:
        """``task`` has ended."""
        self._tasks.pop(task, None)

    def fail(self, error: BaseException, who: str) -> None:
        """End the run with ``error``, if it is the first."""
        if self._failure is None:
            self._failure = blame(error, who, self.now())

    # --- the run --------------------------------------------------------------------------------------------------

    def finish(self, reason: str) -> None:
        """End the run once this event has been dealt with: every task that is no observer is abandoned."""
        if self._reason is None:
            self._reason, self.over = reason, True

    def run(self) -> str:
        """Run until ``finish``; returns its reason.

        Raises what a task raised (not ours: as the cause of a ``RunError``), ``DeadlockError`` or ``NoProgressError``.
        """
        try:
            self._advance(lambda: self._reason is not None)
            self._abandon(task for task in list(self._tasks) if not task.observer)
            self._raise_failure()
        except BaseException:
            self.close()
            raise
        return self._reason or ""

    def conclude(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """After ``run``: run ``coroutine`` to its end with the observers still there, then close everything.

        It begins at once, before whatever else was to happen in the instant in which the run ended.
        """
        try:
            last = self._enlist(coroutine, "observer", 0, observer=True)
            last.begin()
            self._advance(lambda: last.done)
        finally:
            self.close()
        self._raise_failure()

    def close(self) -> None:
        """Abandon every task: no coroutine is left pending."""
        while self._tasks:  # a coroutine's last words may start another
            self._abandon(list(self._tasks))

    @abstractmethod
    def _advance(self, ended: Callable[[], bool]) -> None:
        """Deal with events until ``ended()``. Raises the first failure, and ``DeadlockError``."""

    def _abandon(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            task.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _deadlock(self) -> RunError:
        here = list(self._tasks)
        parties = [task for task in here if not task.observer] or here
        return deadlock([(task.who, task.waiting.about) for task in parties if task.waiting is not None], self.now())
