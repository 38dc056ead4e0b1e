"""The common part of both worlds: signals, tasks, and the phases of a run. A world adds its clock."""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, TypeVar

from vflsim.errors import RunError
from vflsim.learning.execution.executor import Executor
from vflsim.learning.execution.operations import Operation
from vflsim.world.clock import Due, Moment, Timer
from vflsim.world.failures import blame, deadlock, foreign

T = TypeVar("T")


class Abandoned(BaseException):
    """Thrown into a coroutine whose work has become useless; caught by the ``until`` block it names.

    ``scope`` is ``None`` when the world closes. Not an ``Exception``: a protocol's ``except Exception`` must not catch
    it.
    """

    def __init__(self, scope: object | None = None) -> None:
        super().__init__(scope)
        self.scope = scope


class _Nothing:
    """An awaitable that is done at once. One object serves all, which is cheaper than a new coroutine every time."""

    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]  # at its end from the start: nothing is ever sent to it


NOTHING = _Nothing()


class Signal:
    """An event that one coroutine waits for, and that is set at most once. Verbs yield nothing else.

    ``about``, as text, names the event in error messages. A kind that has to tidy up when its waiter is abandoned
    overrides ``forsake``.
    """

    __slots__ = ("_waiter", "_world", "about", "done", "value")

    def __init__(self, world: World, about: object = "something") -> None:
        self._world, self.about, self.done = world, about, False
        self.value: Any = None
        self._waiter: Task | None = None

    def set(self, value: Any = None) -> None:
        """Resume the waiter, who finds ``value`` here, later in this instant; do nothing if set before."""
        if not self.done:
            self.done, self.value = True, value
            if self._waiter is not None:
                self._world.soon(self.wake)

    def wake(self) -> None:
        """Resume the waiter of a signal that is set, unless it was interrupted in between."""
        task = self._waiter
        if task is not None and task.waiting is self:
            task.step()

    def forsake(self) -> None:
        """Called when an error or the end of the run is about to take the waiter away."""

    def __await__(self) -> Generator[Signal, Any, None]:
        # Of a tuple: it yields this signal once, for less than a generator, and nothing is ever sent to it.
        return iter(() if self.done else (self,))  # type: ignore[return-value]

    def __str__(self) -> str:
        return str(self.about)


class Task:
    """A coroutine that goes from signal to signal, in a context of its own (context variables do not leak).

    It is driven by its world's callbacks, not by ``simpy.Process`` or ``asyncio.Task``: their interrupts arrive later
    in the instant, where a message could overtake them; ``interrupt`` here abandons work at once, in both worlds alike.
    """

    __slots__ = ("_coroutine", "_run", "_send", "_world", "done", "observer", "party", "pause", "waiting", "who")

    def __init__(self, world: World, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool) -> None:
        self._world, self._coroutine, self._send = world, coroutine, coroutine.send
        self._run = contextvars.copy_context().run
        self.who, self.party, self.observer, self.done = who, party, observer, False
        self.waiting: Signal | None = None
        self.pause: Any = None
        """The signal of its waits for a time, which its world uses again."""

    def begin(self) -> None:
        """Run up to the first wait, unless closed before."""
        if not self.done:
            self.step()

    def step(self, _event: object = None, error: BaseException | None = None) -> None:
        """Resume the coroutine, or throw ``error`` in, until its next wait. A calendar calls it with the event."""
        world = self._world
        outer, world._current = world._current, self
        waiting, self.waiting = self.waiting, None
        try:
            if error is None:
                wanted = self._run(self._send, None)
            else:
                if waiting is not None:
                    waiting.forsake()
                wanted = self._run(self._coroutine.throw, error)
            while not isinstance(wanted, Signal):
                kind = type(wanted)
                error = foreign(f"{kind.__module__}.{kind.__qualname__}")
                wanted = self._run(self._coroutine.throw, error)
            wanted._waiter, self.waiting = self, wanted
        except (StopIteration, Abandoned):
            self._end()
        except BaseException as failure:
            self._end()
            world.fail(failure, self.who)
        finally:
            world._current = outer

    def interrupt(self, scope: object) -> None:
        """Throw ``Abandoned(scope)`` in, now, if it waits; one that runs meets its scope at its next verb."""
        if self.waiting is not None:
            self.step(error=Abandoned(scope))

    def close(self) -> None:
        """Abandon the coroutine; a ``finally`` that waits again is cut short."""
        if not self.done:
            self.step(error=Abandoned())
        if not self.done:
            if self.waiting is not None:
                self.waiting.forsake()
            self._end()
            self._coroutine.close()
        self._world.forget(self)  # even if an interrupt from outside cut its end short

    def _end(self) -> None:
        self.done, self.waiting, self.pause = True, None, None
        self._world.forget(self)


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
        self._current: Task | None = None
        self._last: Task | None = None
        self._failure: BaseException | None = None
        self._reason: str | None = None
        self._halted = False  # the run, or its conclusion, has ended or failed: checked after every event

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
    def schedule(self, event: Due, seconds: float) -> None:
        """Have ``event`` happen in ``seconds`` (``Moment.EVENT``): a timer without an object of its own."""

    @abstractmethod
    def cancel(self, event: Due) -> None:
        """Have a scheduled ``event`` not happen; nothing if it is not due. It must not be scheduled again."""

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
        if self._current is None:
            raise RunError("a verb was used outside a task of the world")
        return self._current

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
