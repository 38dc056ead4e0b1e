"""Real time, on asyncio: the only module that imports it. Parties share one process; tensor work runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from vflsim.errors import RunError
from vflsim.learning.execution.operations import Executor, ImmediateExecutor, Operation
from vflsim.world.kernel import E, Moment, World


class RealTimer:
    """A cancellable callback on the loop's clock."""

    __slots__ = ("_call", "_counts", "_handle", "_world")

    def __init__(self, world: RealTimeWorld, delay: float, call: Callable[[], object], counts: bool) -> None:
        self._world, self._call, self._counts = world, call, counts
        self._handle: asyncio.Handle | None = None
        if world._closed:  # nothing happens any more
            return
        world._live += counts
        loop = world._loop
        due = world.now() + max(0.0, delay)
        self._handle = (
            loop.call_at(world._clock() + delay / world.speed, world._dispatch, self.fire, due)
            if delay > 0
            else loop.call_soon(world._dispatch, self.fire, due)
        )

    def fire(self) -> None:
        """Make the call, unless it was cancelled."""
        if self._handle is not None:
            self.cancel()
            self._call()

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._world._live -= self._counts


class RealTimeWorld(World):
    """Runs coroutines in real time, ``speed`` simulated seconds to the second. Invariants of ``World``.

    Delays, links and activations are emulated by waiting. A computation waits its drawn time, then really runs, in a
    thread of its party's own (so a party's operations keep their order); abandoned there, it runs to its end unseen,
    for a thread cannot be stopped. Instants are the loop's turns, so the order of nearly simultaneous events is the
    machine's, and results are not reproducible. Raises ``RunError`` for a speed that is not positive.
    """

    takes_turns = True

    def __init__(
        self, executor: Executor | None = None, speed: float = 1.0, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(executor or ImmediateExecutor())
        if not 0 < speed < float("inf"):
            raise RunError(f"a real-time speed of {speed!r}", allowed="simulated seconds to the second, above 0")
        self.speed = speed
        self._loop, self._lent = loop or asyncio.new_event_loop(), loop is not None
        self._closed = False
        self._start: float | None = None
        self._stopped: float | None = None
        self._turn: float | None = None
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._live = 0  # callbacks and computations to come that are not an observer's
        self._due: dict[object, RealTimer] = {}

    def now(self) -> float:
        """Simulated seconds since the start; the clock stands still during a turn, and stops with the run."""
        if self._stopped is not None:
            return self._stopped
        if self._start is None:
            return 0.0
        return (self._clock() - self._start) * self.speed

    def _clock(self) -> float:
        """Return the loop's time, which stands still during a turn."""
        return self._loop.time() if self._turn is None else self._turn

    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> RealTimer:
        """Call ``callback`` in ``delay`` simulated seconds (the loop keeps no finer order within an instant)."""
        return RealTimer(self, delay, callback, not observer)

    def schedule(self, seconds: float, then: Callable[[E], object], event: E) -> None:
        """Call ``then(event)`` in ``seconds`` simulated seconds."""
        self._due[event] = RealTimer(self, seconds, partial(self._happen, then, event), True)

    def cancel(self, event: object) -> None:
        """Have a scheduled ``event`` not happen."""
        self._due.pop(event).cancel()

    def _happen(self, then: Callable[[E], object], event: E) -> None:
        del self._due[event]
        then(event)

    async def perform(self, operation: Operation[Any]) -> None:
        """Run the operation in its party's thread."""
        pool = self._pools.get(operation.party)
        if pool is None:
            pool = self._pools[operation.party] = ThreadPoolExecutor(1, f"party-{operation.party}")
        ended = self.signal("its computation to end")

        def report(work: Future[None]) -> None:
            if not work.cancelled():
                self._loop.call_soon_threadsafe(self._dispatch, partial(ended.set, work.exception()))

        self._live += 1
        work = pool.submit(self.executor.submit, operation)
        work.add_done_callback(report)
        try:
            await ended
        except BaseException:
            if not work.cancel():  # its thread has taken it up
                self.ran_unseen(operation)
            raise
        finally:
            self._live -= 1
        if ended.value is not None:
            raise ended.value

    def ran_unseen(self, operation: Operation[Any]) -> None:
        """Note that an operation has run, or runs to its end, although its party has abandoned it."""

    async def breathe(self) -> None:
        """Let others run."""
        turn = self.signal("its turn")
        self.soon(turn.set)
        await turn

    def finish(self, reason: str) -> None:
        """End the run, and stop the clock."""
        self._stopped = self.instant = self.now()
        super().finish(reason)

    def close(self) -> None:
        """Abandon every task, wait for the threads, close the loop unless it was lent."""
        super().close()
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
        self._closed = True
        if not self._lent:
            self._loop.close()

    def _advance(self) -> None:
        if self._start is None:
            self._start = self._loop.time()
        if not self._halted:
            self._loop.call_soon(self._dispatch, lambda: None)  # there may be nothing to wait for
            self._loop.run_forever()
        self._stopped = self.instant = self.now()
        self._raise_failure()

    def _time_of_turn(self, due: float | None) -> float:
        """Return the loop's time for all of a turn, however slow the machine; ``due``: when it should begin (s)."""
        return self._loop.time()

    def _dispatch(self, call: Callable[[], object], due: float | None = None) -> None:
        """Handle one event, ``due`` at a simulated time: make the call, then check whether the run has ended."""
        if self._closed:
            return
        if self._halted:  # in the turn in which the run ended: left to its conclusion
            self._loop.call_soon(self._dispatch, call, due)
            return
        self._turn = self._time_of_turn(due)
        self.instant = self.now()
        try:
            call()
            self.events += 1
            if self._live == 0 and not self._halted:
                raise self._deadlock()
        except BaseException as error:
            self.fail(error, "the world")
        finally:
            self._turn = None
        if self._halted:
            self._loop.stop()
