"""Coroutines that go from signal to signal, in both worlds alike, and how they fail."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Protocol

from vflsim.errors import DeadlockError, ForeignAwaitError, RunError, StandstillError, VflsimError
from vflsim.streams import few, party_name

STANDSTILL = 1_000_000
"""Events and verbs at one instant after which a run is declared stuck."""


def foreign(waited: str) -> ForeignAwaitError:
    """Return the error for a coroutine that awaited something other than a verb of its node."""
    return ForeignAwaitError(
        f"awaited {waited}, which no world knows",
        allowed="the verbs of the node: node.sleep, node.recv, node.compute, …",
        remedy="replace asyncio.sleep(s) by node.sleep(s); a protocol must not know which world it runs in",
    )


def blame(error: BaseException, who: str, now: float) -> BaseException:
    """Return ``error`` with its party and virtual time; cause and traceback stay.

    An error from outside vflsim becomes the cause of a ``RunError``; one that is no ``Exception`` (Ctrl-C) stays.
    """
    where = f"{who} at {now:.6g} s"
    if not isinstance(error, Exception):
        return error
    if isinstance(error, VflsimError):
        ours = error
    elif isinstance(error, RuntimeError) and str(error) == "no running event loop":
        ours = foreign("something of asyncio")  # asyncio itself has noticed that virtual time is not its own
    else:
        ours = RunError(f"{type(error).__name__}: {error}")
    if ours is not error:
        ours.__cause__ = error
    if not ours.where:
        ours.where = where
        ours.args = (ours.what, where, ours.allowed, ours.remedy)
    return ours


def deadlock(waits: Iterable[tuple[str, object]], now: float) -> DeadlockError:
    """Return the error that names all waits, given pairs of a task's name and the object of its wait."""
    waiting: dict[str, list[str]] = {}
    for who, what in waits:
        waiting.setdefault(str(what), []).append(who)
    listed = few([f"{few(who)} wait{'s' * (len(who) == 1)} for {what}" for what, who in waiting.items()], "; ")
    return DeadlockError(
        f"deadlock: nothing can happen any more; {listed or 'every party has returned'}",
        f"{now:.6g} s",
        remedy="a party must send what another waits for, or the protocol must stop waiting (timeout, quorum)",
    )


def stuck(events: int) -> StandstillError:
    """Return the error of a run whose clock has not moved for so many events and verbs."""
    return StandstillError(
        f"{events} events without the clock moving: the protocol loops without any time passing",
        allowed="something in every loop that takes time: compute, a link, a delay",
        remedy="give the server a compute time, or limit the run with stop: {rounds: …}",
    )


# --- signals and tasks ------------------------------------------------------------------------------------------------


def evaluation_task(party: int) -> str:
    """Name the task in which a party answers an evaluation."""
    return f"{party_name(party)} (evaluation)"


class TaskWorld(Protocol):
    """What tasks and signals ask of their world."""

    running: Task | None

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in this instant, before all other callbacks of it."""

    def fail(self, error: BaseException, who: str) -> None:
        """End the run with ``error``, if it is the first."""

    def forget(self, task: Task) -> None:
        """``task`` has ended."""

    def cancel(self, event: object) -> None:
        """Have a scheduled ``event`` not happen."""


class Abandoned(BaseException):
    """Thrown into a coroutine whose work has become useless; caught by the ``until`` block it names.

    ``scope`` is ``None`` when the world closes. Not an ``Exception``: a protocol's ``except Exception`` must not catch
    it.
    """

    def __init__(self, scope: object | None = None) -> None:
        super().__init__(scope)
        self.scope = scope


class Signal:
    """An event that one coroutine waits for, and that is set at most once. Verbs yield nothing else.

    ``about``, as text, names the event in error messages. A kind that has to tidy up when its waiter is abandoned
    overrides ``forsake``.
    """

    __slots__ = ("_waiter", "_world", "about", "done", "value")

    def __init__(self, world: TaskWorld, about: object = "something") -> None:
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


class Awaits(tuple[Signal, ...]):
    """Awaits the signal that it holds, or nothing, without a call of Python."""

    __slots__ = ()
    __await__ = tuple.__iter__  # ends once its signal is set: nothing is ever sent to it


NOTHING: Awaitable[None] = Awaits()  # type: ignore[assignment]  # as an iterator of tuples is no generator
"""An awaitable that is done at once. One object serves all, which is cheaper than a new coroutine every time."""


class Task:
    """A coroutine that goes from signal to signal, in a context of its own (context variables do not leak).

    It is driven by its world's callbacks, not by ``simpy.Process`` or ``asyncio.Task``: their interrupts arrive later
    in the instant, where a message could overtake them; ``interrupt`` here abandons work at once, in both worlds alike.
    """

    __slots__ = ("_coroutine", "_run", "_send", "_world", "done", "observer", "party", "pause", "waiting", "who")

    def __init__(
        self, world: TaskWorld, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool
    ) -> None:
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
        outer, world.running = world.running, self
        waiting, self.waiting = self.waiting, None
        run = self._run
        try:
            if error is None:
                wanted = run(self._send, None)
            else:
                if waiting is not None:
                    waiting.forsake()
                wanted = run(self._coroutine.throw, error)
            while not isinstance(wanted, Signal):
                kind = type(wanted)
                error = foreign(f"{kind.__module__}.{kind.__qualname__}")
                wanted = run(self._coroutine.throw, error)
            wanted._waiter, self.waiting = self, wanted
        except (StopIteration, Abandoned):
            self._end()
        except BaseException as failure:
            self._end()
            world.fail(failure, self.who)
        finally:
            world.running = outer

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
