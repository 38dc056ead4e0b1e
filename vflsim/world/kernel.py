"""The common part of both worlds: tasks and the phases of a run. A world adds its clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from vflsim.errors import RunError
from vflsim.learning.execution.operations import Executor, Operation
from vflsim.world.task import NOTHING, Signal, Task, blame, deadlock


class Moment(IntEnum):
    """The order of things that happen at the same instant."""

    RESUME = 0  # a coroutine whose signal was set continues
    EVENT = 1  # delays end, messages arrive
    TIMEOUT = 2  # a message beats a timeout
    COLLECT = 3  # receives resolve in (arrival time, party) order, independent of the order of arrival events
    SHARE = 4  # after all changes of the instant: fair links are solved anew
    OUTAGE = 5  # parties go down and come up: an activity that ends at that very instant has ended before
    OBSERVE = 6  # evaluation and stop rules see the instant as it ended


class Timer(Protocol):
    """A cancellable scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called."""


T = TypeVar("T")
E = TypeVar("E")


class World(ABC):
    """A clock, and the tasks that run by it.

    Invariants: callbacks of one instant run in ``Moment`` order, ties in the order scheduled; a failed task ends the
    whole run, never silently; when nothing can happen any more the run ends with a ``DeadlockError``; after
    ``conclude``, or a run that failed, no coroutine is pending.
    """

    takes_turns = False
    """Whether a verb awaits its turn before it does anything (``breathe``)."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.instant = 0.0
        """What ``now()`` gives within an event: seconds since the start."""
        self.over = False
        """Whether the run has ended: work abandoned from then on counts as unfinished."""
        self.ending: Callable[[], object] | None = None
        """Called when the run has ended without a failure, while its tasks still wait."""
        self.events = 0
        self._tasks: dict[Task, None] = {}  # a set that keeps its order
        self.running: Task | None = None
        self._last: Task | None = None
        self._failure: BaseException | None = None
        self._reason: str | None = None
        self._halted = False  # the run, or its conclusion, has ended or failed: checked after every event

    # --- the clock ------------------------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> float:
        """Seconds since the start."""

    def read_clock(self) -> float:
        """Return ``now`` to a protocol, which may act on it."""
        return self.now()

    @abstractmethod
    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> Timer:
        """Call ``callback`` in ``delay`` seconds. An ``observer``'s timer does not keep a deadlocked run alive."""

    def at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` at the instant ``when``, which has not passed."""
        return self.after(max(0.0, when - self.instant), callback)

    @abstractmethod
    def schedule(self, seconds: float, then: Callable[[E], object], event: E) -> None:
        """Call ``then(event)`` in ``seconds`` (``Moment.EVENT``): a timer without an object of its own."""

    @abstractmethod
    def cancel(self, event: object) -> None:
        """Have an ``event`` that is scheduled, and has not happened, not happen. It must not be scheduled again."""

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in this instant, before all other callbacks of it (``Moment.RESUME``)."""
        self.after(0.0, callback, Moment.RESUME)

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` as this instant ends (``Moment.COLLECT``)."""
        self.after(0.0, callback, Moment.COLLECT)

    def until_work(self, operation: Operation[Any], seconds: float) -> float:
        """Return after how many of the ``seconds`` that an operation takes it is to be performed: all, unless its real
        work takes time, too."""
        return seconds

    @abstractmethod
    def perform(self, operation: Operation[Any]) -> Awaitable[None] | None:
        """Hand an operation, whose time has passed, to the executor; return an awaitable if the caller must wait."""

    def breathe(self) -> Awaitable[None]:
        """Let others run, in a world that ``takes_turns``: every verb awaits this first."""
        return NOTHING

    def stand_still(self) -> None:
        """Called by every verb that lets no time pass, and makes no event: in virtual time they are limited."""
        return None

    def pause(self, seconds: float, about: str) -> Awaitable[None]:
        """Let ``seconds`` pass."""
        if seconds > 0:
            return self._wait(seconds, about)
        self.stand_still()
        return NOTHING

    async def _wait(self, seconds: float, about: str) -> None:
        signal = Signal(self, about)
        timer = self.after(seconds, signal.set)
        try:
            await signal
        finally:
            timer.cancel()

    # --- tasks ----------------------------------------------------------------------------------------------------

    def signal(self, about: object = "something") -> Signal:
        """Return a new signal; ``about``, as text, names it in error messages."""
        return Signal(self, about)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool = False) -> Task:
        """Start ``coroutine`` at this instant; its failure ends the run. Observers survive ``finish``."""
        task = self._enlist(coroutine, who, party, observer)
        self.soon(task.begin)
        return task

    def _enlist(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool) -> Task:
        task = Task(self, coroutine, who, party, observer)
        self._tasks[task] = None
        return task

    def current(self) -> Task:
        """The task that runs right now. Raises ``RunError`` outside any."""
        if self.running is None:
            raise RunError("a verb was used outside a task of the world")
        return self.running

    def tasks(self) -> list[Task]:
        """The tasks that have not ended, in the order in which they were started."""
        return list(self._tasks)

    def forget(self, task: Task) -> None:
        """``task`` has ended."""
        self._tasks.pop(task, None)
        if task is self._last:
            self._halted = True

    def fail(self, error: BaseException, who: str) -> None:
        """End the run with ``error``, if it is the first."""
        if self._failure is None:
            self._failure = blame(error, who, self.now())
            self._halted = True

    # --- the run --------------------------------------------------------------------------------------------------

    def finish(self, reason: str) -> None:
        """End the run once this event has been dealt with: every task that is no observer is abandoned."""
        if self._reason is None:
            self._reason, self.over, self._halted = reason, True, True

    def run(self) -> str:
        """Run until ``finish``; returns its reason.

        Raises a task's error (foreign: as the cause of a ``RunError``), ``DeadlockError`` and ``NoProgressError``.
        """
        try:
            self._advance()
            if self.ending is not None:
                self.ending()
            self._abandon(task for task in list(self._tasks) if not task.observer)
            self._raise_failure()
        except BaseException:
            self.close()
            raise
        return self._reason or ""

    def conclude(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """After ``run``: run ``coroutine`` to its end with the observers still there, then close everything.

        It begins at once, before all that is left of the instant in which the run ended.
        """
        try:
            self._halted = False
            self._last = self._enlist(coroutine, "observer", 0, observer=True)
            self._last.begin()
            self._advance()
        finally:
            self.close()
        self._raise_failure()

    def close(self) -> None:
        """Abandon every task: no coroutine is left pending."""
        while self._tasks:  # a coroutine's last words may start another
            self._abandon(list(self._tasks))

    @abstractmethod
    def _advance(self) -> None:
        """Deal with events until ``_halted``. Raises the first failure, and ``DeadlockError``."""

    def _has_ended(self) -> bool:
        """Whether the run, or its conclusion, has ended or failed."""
        ended = self._reason is not None if self._last is None else self._last.done
        return ended or self._failure is not None

    def _abandon(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            task.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _deadlock(self) -> RunError:
        here = list(self._tasks)
        parties = [task for task in here if not task.observer] or here
        return deadlock([(task.who, task.waiting) for task in parties if task.waiting is not None], self.now())


async def all_of(
    world: World, start: Callable[[Coroutine[Any, Any, Any]], Task], coroutines: Sequence[Coroutine[Any, Any, T]]
) -> list[T]:
    """Start the coroutines beside each other and wait until all have ended; return their results in their order."""
    results: dict[int, T] = {}
    ended = world.signal("what runs beside it")

    async def run(place: int, coroutine: Coroutine[Any, Any, T]) -> None:
        results[place] = await coroutine
        if len(results) == len(coroutines):
            ended.set()

    tasks = [start(run(place, coroutine)) for place, coroutine in enumerate(coroutines)]
    try:
        if tasks:
            await ended
    finally:
        for task, coroutine in zip(tasks, coroutines, strict=True):
            task.close()
            coroutine.close()  # of a task that never began
    return [results[place] for place in range(len(tasks))]
