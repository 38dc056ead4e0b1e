"""Virtual time, on SimPy: the only module that imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

from vflsim.errors import NoProgressError
from vflsim.learning.executor import Executor
from vflsim.learning.operations import Operation
from vflsim.world.kernel import Moment, World

STANDSTILL = 1_000_000
"""Events and verbs at one instant after which a run is declared stuck."""


class VirtualTimer:
    """A scheduled callback, and itself what SimPy schedules: of an event that asks only ``callbacks`` and ``_ok``.

    SimPy cannot take an event back, so a cancelled one is passed over when its time comes.
    """

    __slots__ = ("_call", "_counts", "_world", "callbacks")
    _ok = True

    def __init__(self, world: VirtualWorld, call: Callable[[], object], counts: bool) -> None:
        self._world, self._counts = world, counts
        self._call: Callable[[], object] | None = call
        self.callbacks = _FIRE
        world._live += counts

    def fire(self) -> None:
        """Its time has come."""
        call = self._call
        if call is not None:
            self.cancel()
            call()

    def cancel(self) -> None:
        """Make it never happen; nothing if it has."""
        if self._call is not None:
            self._call = None
            self._world._live -= self._counts


_FIRE = (VirtualTimer.fire,)


class VirtualWorld(World):
    """Runs coroutines in virtual time. Invariants of ``World``; besides, the same inputs give the same event order."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._env = simpy.Environment()
        self._still = 0  # events and verbs since the clock last moved

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._env.now

    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> VirtualTimer:
        """Call ``callback`` in ``delay`` virtual seconds."""
        timer = VirtualTimer(self, callback, not observer)
        self._env.schedule(timer, moment, delay)  # type: ignore[arg-type]
        return timer

    async def perform(self, operation: Operation[Any], seconds: float) -> None:
        """Let ``seconds`` pass, then queue the operation."""
        await self.pause(seconds, "its computation to end")
        self.executor.submit(operation)

    async def breathe(self) -> None:
        """Yield to nobody, but count: a coroutine whose verbs take no time makes no events."""
        self._still += 1
        if self._still > STANDSTILL:
            raise _stuck()

    def _advance(self, ended: Callable[[], bool]) -> None:
        env, now = self._env, self._env.now
        while not ended():
            if self._live == 0:
                raise self._deadlock()
            env.step()
            self.events += 1
            if env.now != now:
                now, self._still = env.now, 0
            else:
                self._still += 1
                if self._still > STANDSTILL:
                    self.fail(_stuck(), "the world")
            if self._failure is not None:
                raise self._failure


def _stuck() -> NoProgressError:
    return NoProgressError(
        f"{STANDSTILL} events without the clock moving: the protocol loops without any time passing",
        allowed="something in every loop that takes time: compute, a link, a delay",
        remedy="give the server a compute time, or limit the run with stop: {rounds: …}",
    )
