"""Real time, on asyncio: the only module that imports it. The parties share one process; tensor work runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vflsim.errors import RunError
from vflsim.learning.executor import Executor, ImmediateExecutor
from vflsim.learning.operations import Operation
from vflsim.world.kernel import Abandoned, Moment, World, blame, deadlock
from vflsim.world.kernel import Task as AnyTask

_SILENCE = 0.05
"""Wall-clock seconds without a timer or a computation under way after which a run counts as deadlocked."""


class RealTimer:
    """A callback to come, on the loop's clock."""

    __slots__ = ("_call", "_counts", "_handle", "_world")

    def __init__(self, world: RealTimeWorld, delay: float, call: Callable[[], None], observer: bool) -> None:
        self._world, self._call, self._counts = world, call, int(not observer)
        world._count(self._counts)
        loop = world._loop
        self._handle: asyncio.Handle | None = (
            loop.call_later(delay / world.speed, self._fire) if delay > 0 else loop.call_soon(self._fire)
        )

    def _fire(self) -> None:
        self.cancel()
        self._call()

    def cancel(self) -> None:
        """Make it never happen; nothing if it has."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._world._count(-self._counts)


class RealSignal:
    """Something one coroutine waits for, on an asyncio future."""

    __slots__ = ("_future", "_world", "about")

    def __init__(self, world: RealTimeWorld) -> None:
        self._world = world
        self._future: asyncio.Future[Any] = world._loop.create_future()
        self.about: Callable[[], str] | None = None

    @property
    def done(self) -> bool:
        """Whether it was set; a cancelled wait is not."""
        return self._future.done() and not self._future.cancelled()

    def set(self, value: Any = None) -> None:
        """Let the waiter go on with ``value``; nothing if set before."""
        if not self._future.done():
            self._future.set_result(value)

    def __await__(self) -> Generator[Any, Any, Any]:
        task = self._world.current()
        task.waiting = self
        try:
            return (yield from self._future.__await__())
        finally:
            task.waiting = None


class RealTask:
    """An asyncio task and the party it belongs to."""

    def __init__(self, who: str, party: int, observer: bool) -> None:
        self.who, self.party, self.observer = who, party, observer
        self.waiting: RealSignal | None = None
        self.task: asyncio.Task[None]

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.task.done()


class RealTimeWorld(World):
    """Runs coroutines in real time, ``speed`` simulated seconds to the second. Invariants of ``World``.

    Delays, links and activations are emulated by waiting. A computation waits its drawn time, then really runs, in a
    thread of its party's own (so a party's operations keep their order). The order of nearly simultaneous events is
    the machine's, so results are not reproducible.
    """

    def __init__(self, executor: Executor | None = None, speed: float = 1.0) -> None:
        self.executor, self.speed = executor or ImmediateExecutor(), speed
        self._loop = asyncio.new_event_loop()
        self._start: float | None = None
        self._ended: float | None = None
        self._tasks: dict[asyncio.Task[Any], RealTask] = {}
        self._failure: BaseException | None = None
        self._reason: str | None = None
        self._over = asyncio.Event()
        self._interrupted: set[object] = set()
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._pending, self._turn = 0, 0
        self.events = 0

    def now(self) -> float:
        """Simulated seconds since the start; the clock stops with the run."""
        if self._ended is not None:
            return self._ended
        return 0.0 if self._start is None else (self._loop.time() - self._start) * self.speed

    def after(
        self, delay: float, callback: Callable[[], None], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> RealTimer:
        """Call ``callback`` in ``delay`` simulated seconds (the loop keeps no finer order within an instant)."""
        return RealTimer(self, delay, callback, observer)

    def signal(self) -> RealSignal:
        """A new signal."""
        return RealSignal(self)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool = False) -> RealTask:
        """Start ``coroutine`` as an asyncio task."""
        task = RealTask(who, party, observer)
        task.task = self._loop.create_task(self._supervise(task, coroutine), name=who)
        self._tasks[task.task] = task
        task.task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _supervise(self, task: RealTask, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except (Abandoned, asyncio.CancelledError):
            pass
        except BaseException as error:
            if self._failure is None:
                self._failure = blame(error, task.who, self.now())
            self._over.set()

    def current(self) -> RealTask:
        """The task that runs right now."""
        task = asyncio.current_task(self._loop)
        if task is None or task not in self._tasks:
            raise RunError("a verb was used outside a task of the world")
        return self._tasks[task]

    def interrupt(self, task: AnyTask, scope: object) -> None:
        """Cancel the task on behalf of ``scope``."""
        assert isinstance(task, RealTask)
        if not task.done:
            self._interrupted.add(scope)
            task.task.cancel()

    def absorbs(self, task: AnyTask, scope: object, error: BaseException | None) -> bool:
        """Whether ``error`` is the cancellation asked for by ``scope`` (then it is taken back)."""
        assert isinstance(task, RealTask)
        if scope in self._interrupted:
            self._interrupted.discard(scope)
            task.task.uncancel()
            return isinstance(error, asyncio.CancelledError)
        return isinstance(error, Abandoned) and error.scope is scope

    async def perform(self, operation: Operation[Any], seconds: float) -> None:
        """Wait ``seconds``, then run the operation in its party's thread."""
        self._count(1)
        try:
            await asyncio.sleep(seconds / self.speed)
            pool = self._pools.get(operation.party)
            if pool is None:
                pool = self._pools[operation.party] = ThreadPoolExecutor(1, f"party-{operation.party}")
            await self._loop.run_in_executor(pool, self.executor.submit, operation)
        finally:
            self._count(-1)

    async def breathe(self) -> None:
        """Let others run."""
        self.events += 1
        await asyncio.sleep(0)

    def finish(self, reason: str) -> None:
        """End the run: every task that is no observer is cancelled."""
        if self._reason is None:
            self._ended = self.now()
            self._reason, self.over = reason, True
            self._over.set()

    def run(self) -> str:
        """Run until ``finish``. Raises ``DeadlockError``, or what a task raised."""
        self._start = self._loop.time()
        self._count(0)
        try:
            self._loop.run_until_complete(self._over.wait())
            self._cancel(observers=False)
            self._raise_failure()
        except BaseException:
            self._shut_down()
            raise
        return self._reason or ""

    def conclude(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run ``coroutine`` to its end with the observers still there, then close everything."""
        try:
            last = self.spawn(coroutine, "observer", 0, observer=True)
            self._loop.run_until_complete(last.task)
            self._raise_failure()
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        self._cancel(observers=True)
        for pool in self._pools.values():
            pool.shutdown()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _cancel(self, observers: bool) -> None:
        tasks = [task.task for task in self._tasks.values() if observers or not task.observer]
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _count(self, change: int) -> None:
        """Keep the number of timers and computations under way; none for a while is a deadlock."""
        self._pending += change
        self._turn += 1
        if self._pending == 0 and not self._loop.is_closed():
            self._loop.call_later(_SILENCE, self._check_deadlock, self._turn)

    def _check_deadlock(self, turn: int) -> None:
        if self._pending == 0 and turn == self._turn and self._reason is None and self._failure is None:
            waiting = [task for task in self._tasks.values() if not task.observer]
            self._failure = deadlock(waiting, self.now())
            self._over.set()
