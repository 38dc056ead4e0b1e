"""Virtual time, on SimPy: the only module that imports it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import simpy

from vflsim.errors import NoProgressError, RunError, VflsimError
from vflsim.learning.executor import Executor
from vflsim.learning.operations import Operation
from vflsim.world.kernel import Abandoned, Moment, World, blame, deadlock, foreign
from vflsim.world.kernel import Task as AnyTask

STANDSTILL = 1_000_000
"""Events at one instant after which a run is declared stuck."""


class _Event(simpy.Event):
    """A SimPy event that is scheduled with any ``Moment`` and calls one callback."""

    def __init__(self, env: simpy.Environment, call: Callable[[Any], None]) -> None:
        super().__init__(env)
        self.callbacks = [call]
        self._ok = True

    def at(self, moment: Moment, delay: float = 0.0, value: Any = None) -> None:
        self._value = value
        self.env.schedule(self, moment, delay)  # type: ignore[arg-type]  # SimPy names two priorities; any int orders


class VirtualTimer:
    """A scheduled callback. SimPy cannot take an event back, so a cancelled one is passed over when its time comes."""

    __slots__ = ("_call", "_observer", "_world")

    def __init__(
        self, world: VirtualWorld, delay: float, call: Callable[[], None], moment: Moment, observer: bool
    ) -> None:
        self._world, self._call, self._observer = world, call, observer
        world._live += not observer
        _Event(world._env, self._fire).at(moment, delay)

    def _fire(self, _: object) -> None:
        call = self._call
        if call is not _nothing:
            self.cancel()
            call()

    def cancel(self) -> None:
        """Make it never happen; nothing if it has."""
        if self._call is not _nothing:
            self._call = _nothing
            self._world._live -= not self._observer


def _nothing() -> None:
    """What a cancelled timer does."""


class VirtualSignal:
    """Something one coroutine waits for. Awaiting it is the only thing that ever yields to SimPy."""

    __slots__ = ("_value", "_waiter", "_world", "about", "done")

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world
        self.done = False
        self.about: Callable[[], str] | None = None
        self._value: Any = None
        self._waiter: VirtualTask | None = None

    def set(self, value: Any = None) -> None:
        """Let the waiter go on with ``value``, later in this instant; nothing if set before."""
        if self.done:
            return
        self.done, self._value = True, value
        if self._waiter is not None:
            self._world._resume(self._waiter, self, value)

    def __await__(self) -> Generator[VirtualSignal, Any, Any]:
        return self._value if self.done else (yield self)


class VirtualTask:
    """A coroutine driven by SimPy events, in a context of its own (context variables do not leak between tasks).

    Not ``simpy.Process``: that rebuilds exceptions from their ``args``, and its interrupts arrive as events later in
    the instant, which a message arriving meanwhile could overtake; ``throw`` here abandons work at once.
    """

    def __init__(
        self, world: VirtualWorld, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool
    ) -> None:
        self._world, self._coroutine = world, coroutine
        self._context = contextvars.copy_context()
        self.who, self.party, self.observer, self.done = who, party, observer, False
        self.waiting: VirtualSignal | None = None

    def step(self, value: Any = None, error: BaseException | None = None) -> None:
        """Go on with ``value``, or with ``error`` thrown in, until the next wait."""
        world = self._world
        outer, world._current = world._current, self
        self.waiting = None
        try:
            while True:
                if error is None:
                    waited = self._context.run(self._coroutine.send, value)
                else:
                    waited = self._context.run(self._coroutine.throw, error)
                if isinstance(waited, VirtualSignal):
                    waited._waiter, self.waiting = self, waited
                    return
                error = foreign(waited, self.who)
        except StopIteration:
            self.done = True
        except Abandoned:
            self.done = True
        except BaseException as failure:
            self.done = True
            world._fail(failure, self)
        finally:
            world._current = outer

    def close(self) -> None:
        """Abandon the coroutine; a ``finally`` that waits again is cut short."""
        if self.done:
            return
        self.step(error=Abandoned())
        if not self.done:
            self.done = True
            self._coroutine.close()


class VirtualWorld(World):
    """Runs coroutines in virtual time. Invariants of ``World``; besides, the same inputs give the same event order."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._env = simpy.Environment()
        self._live = 0  # events to come that are not an observer's: none left means deadlock
        self._tasks: list[VirtualTask] = []
        self._current: VirtualTask | None = None
        self._failure: BaseException | None = None
        self._reason: str | None = None
        self.events = 0
        self._still = 0  # events since the clock last moved

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._env.now

    def after(
        self, delay: float, callback: Callable[[], None], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> VirtualTimer:
        """Call ``callback`` in ``delay`` virtual seconds."""
        return VirtualTimer(self, delay, callback, moment, observer)

    def signal(self) -> VirtualSignal:
        """A new signal."""
        return VirtualSignal(self)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool = False) -> VirtualTask:
        """Start ``coroutine`` at this instant."""
        task = VirtualTask(self, coroutine, who, party, observer)
        if len(self._tasks) > 64 and len(self._tasks) > 2 * sum(not t.done for t in self._tasks):
            self._tasks = [t for t in self._tasks if not t.done]
        self._tasks.append(task)
        self._live += 1
        _Event(self._env, lambda _: self._begin(task)).at(Moment.RESUME)
        return task

    def _begin(self, task: VirtualTask) -> None:
        self._live -= 1
        if not task.done:
            task.step()

    def _resume(self, task: VirtualTask, signal: VirtualSignal, value: Any) -> None:
        self._live += 1

        def go_on(_: object) -> None:
            self._live -= 1
            if task.waiting is signal:  # not if it was interrupted in between
                task.step(value)

        _Event(self._env, go_on).at(Moment.RESUME)

    def current(self) -> VirtualTask:
        """The task that runs right now."""
        if self._current is None:
            raise RunError("a verb was used outside a task of the world")
        return self._current

    def interrupt(self, task: AnyTask, scope: object) -> None:
        """Throw ``Abandoned(scope)`` into the waiting task, now."""
        assert isinstance(task, VirtualTask)
        if not task.done and task.waiting is not None:
            task.step(error=Abandoned(scope))

    def absorbs(self, task: AnyTask, scope: object, error: BaseException | None) -> bool:
        """Whether ``error`` is the interruption thrown for ``scope``."""
        return isinstance(error, Abandoned) and error.scope is scope

    async def perform(self, operation: Operation[Any], seconds: float) -> None:
        """Let ``seconds`` pass, then queue the operation."""
        if seconds > 0:
            signal = self.signal()
            timer = self.after(seconds, signal.set)
            try:
                await signal
            finally:
                timer.cancel()
        self.executor.submit(operation)

    async def breathe(self) -> None:
        """Nothing: virtual time needs no turns."""

    def finish(self, reason: str) -> None:
        """End the run once this event has been dealt with."""
        if self._reason is None:
            self._reason, self.over = reason, True

    def run(self) -> str:
        """Run until ``finish``. Raises ``DeadlockError``, ``NoProgressError``, or what a task raised."""
        try:
            while self._reason is None:
                self._step()
        except BaseException:
            self._close(self._tasks)
            raise
        self._close([task for task in self._tasks if not task.observer])
        self._raise_failure()
        return self._reason

    def conclude(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run ``coroutine`` to its end at this instant with the observers still there, then close everything."""
        last = self.spawn(coroutine, "observer", 0, observer=True)
        try:
            while not last.done:
                self._step()
        finally:
            self._close(self._tasks)

    def _close(self, tasks: list[VirtualTask]) -> None:
        for task in tasks:
            task.close()

    def _step(self) -> None:
        if self._live == 0:
            raise self._deadlock()
        before = self._env.now
        self._env.step()
        self.events += 1
        if self._env.now != before:
            self._still = 0
        else:
            self._still += 1
            if self._still > STANDSTILL:
                raise NoProgressError(
                    f"{STANDSTILL} events without the clock moving: the protocol loops without any time passing",
                    f"{self.now():.6g} s",
                    "something in every loop that takes time: compute, a link, a delay",
                    "give the server a compute time, or limit the run with stop: {rounds: …}",
                )
        self._raise_failure()

    def _fail(self, error: BaseException, task: VirtualTask) -> None:
        if self._failure is None:
            self._failure = blame(error, task.who, self.now())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error

    def _deadlock(self) -> VflsimError:
        return deadlock([task for task in self._tasks if not task.observer], self.now())
