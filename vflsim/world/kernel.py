"""What a world must offer: a clock, timers, signals and tasks. Everything else is written once, on top of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable
from enum import IntEnum
from typing import Any, Protocol

from vflsim.errors import DeadlockError, ForeignAwaitError, RunError, VflsimError
from vflsim.learning.executor import Executor
from vflsim.learning.operations import Operation


class Moment(IntEnum):
    """The order of things that happen at the same instant."""

    RESUME = 0  # a coroutine whose signal was set goes on
    EVENT = 1  # delays end, messages arrive
    TIMEOUT = 2  # a message beats a timeout
    COLLECT = 3  # receives resolve: (arrival time, party) order, whatever the order of arrival events
    OBSERVE = 4  # evaluation and stop rules see the instant as it ended


class Abandoned(BaseException):
    """Thrown into a coroutine whose work has become useless; caught by the ``until`` block it names.

    ``scope`` is ``None`` when the world closes. Not an ``Exception``: a protocol's ``except Exception`` must not eat it.
    """

    def __init__(self, scope: object | None = None) -> None:
        super().__init__(scope)
        self.scope = scope


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> None:
        """Make it never happen; nothing if it has."""


class Signal(Protocol):
    """Something one coroutine waits for; it is set at most once."""

    about: Callable[[], str] | None

    @property
    def done(self) -> bool:
        """Whether it was set."""

    def set(self, value: Any = None) -> None:
        """Let the waiter go on with ``value``; nothing if set before."""

    def __await__(self) -> Generator[Any, Any, Any]: ...


class Task(Protocol):
    """A coroutine under way, and the signal it waits for."""

    who: str
    party: int
    observer: bool

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    @property
    def waiting(self) -> Signal | None:
        """What it waits for."""


class World(ABC):
    """A clock and what hangs on it.

    Invariants: callbacks of one instant run in ``Moment`` order, ties in the order scheduled; a failed task ends the
    whole run, never silently; after ``close`` no coroutine is pending.
    """

    executor: Executor
    over = False
    """Whether the run has ended: what is abandoned from then on was unfinished, not useless."""

    @abstractmethod
    def now(self) -> float:
        """Seconds since the start."""

    @abstractmethod
    def after(
        self, delay: float, callback: Callable[[], None], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> Timer:
        """Call ``callback`` in ``delay`` seconds. An ``observer``'s timer does not keep a deadlocked run alive."""

    @abstractmethod
    def signal(self) -> Signal:
        """A new signal."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, Any], who: str, party: int, observer: bool = False) -> Task:
        """Start ``coroutine`` now; its failure is the party's, and ends the run. Observers survive ``finish``."""

    @abstractmethod
    def current(self) -> Task:
        """The task that runs right now."""

    @abstractmethod
    def interrupt(self, task: Task, scope: object) -> None:
        """Throw ``Abandoned(scope)`` (or the world's own cancellation) into a waiting task."""

    @abstractmethod
    def absorbs(self, task: Task, scope: object, error: BaseException | None) -> bool:
        """Whether ``error``, leaving the block of ``scope``, is the interruption thrown for that very scope."""

    @abstractmethod
    async def perform(self, operation: Operation[Any], seconds: float) -> None:
        """Let ``seconds`` pass for ``operation``, then hand it to the executor (after ``before_submit``)."""

    @abstractmethod
    async def breathe(self) -> None:
        """Let others run: in real time every verb yields to the loop at least once."""

    @abstractmethod
    def finish(self, reason: str) -> None:
        """End the run at this instant: every task that is no observer is abandoned."""

    @abstractmethod
    def run(self) -> str:
        """Run until ``finish``; returns its reason. Raises what a task raised, or ``DeadlockError``."""

    @abstractmethod
    def conclude(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """After ``run``: run ``coroutine`` to its end with the observers still there, then close everything."""


def foreign(waited: object, who: str) -> ForeignAwaitError:
    """The error for a coroutine that awaited something that is not a verb of its node."""
    return ForeignAwaitError(
        f"awaited {type(waited).__module__}.{type(waited).__qualname__}, which this world does not know",
        who,
        "the verbs of the node: node.sleep, node.recv, node.compute, …",
        "replace asyncio.sleep(s) by node.sleep(s); a protocol must not know which world it runs in",
    )


def blame(error: BaseException, who: str, now: float) -> BaseException:
    """``error`` with the party and the virtual time it belongs to; what is not ours becomes a ``RunError``."""
    where = f"{who} at {now:.6g} s"
    if isinstance(error, VflsimError):
        return error if error.where else type(error)(error.what, where, error.allowed, error.remedy)
    if isinstance(error, Exception):
        wrapped = RunError(f"{type(error).__name__}: {error}", where)
        wrapped.__cause__ = error
        return wrapped
    return error


def deadlock(tasks: Iterable[Task], now: float) -> DeadlockError:
    """The error that says who waits for what."""
    waits = [
        f"{task.who} waits for {task.waiting.about() if task.waiting.about else 'something'}"
        for task in tasks
        if task.waiting is not None
    ]
    return DeadlockError(
        "deadlock: nothing can happen any more; " + ("; ".join(waits) or "every party has returned"),
        f"{now:.6g} s",
        remedy="a party must send what another waits for, or the protocol must stop waiting (timeout, quorum)",
    )
