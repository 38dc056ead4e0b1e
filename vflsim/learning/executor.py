"""Executors: when the work behind a handle is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, TypeVar

from vflsim.errors import RunError, VflsimError
from vflsim.learning.operations import Handle, Operation

T = TypeVar("T")

_OVERHEAD = 4096
"""Bytes that a queued operation costs beside its results: about what Python needs for it."""


def run_operation(operation: Operation[Any]) -> None:
    """Run ``operation``; an error found late names the party, the round and the virtual time it belongs to."""
    try:
        operation.run()
    except VflsimError as error:
        if error.where or not operation.where:
            raise
        raise type(error)(error.what, operation.where, error.allowed, error.remedy) from error
    except Exception as error:  # whatever a model of the user's may raise
        raise RunError(f"{operation.kind} failed: {error}", operation.where) from error


class Executor(ABC):
    """Takes operations in the order in which they complete in virtual time.

    Invariants: each party's operations run in the order submitted; an operation runs at most once; what is never
    submitted (abandoned work) never runs.
    """

    values = True
    """Whether handles ever hold values (``False``: timing only)."""

    @abstractmethod
    def submit(self, operation: Operation[Any]) -> None:
        """Queue a completed operation."""

    @abstractmethod
    def force(self, handle: Handle[T]) -> T:
        """The handle's value; runs whatever it depends on."""

    def flush(self) -> None:
        """Run everything queued (nothing, where nothing ever waits)."""
        return None


class DeferredExecutor(Executor):
    """Runs nothing until a value is needed, then runs the queue in order, one operation at a time.

    Submission order is a topological order of the dependencies (an operation's inputs are results of operations that
    completed before it began), so a single queue serves every party. When the results promised by the queue exceed
    ``limit_bytes`` (counted from shapes, hence the same in every repetition) the queue is run.
    """

    def __init__(self, limit_bytes: int = 256 * 2**20, overhead: int = _OVERHEAD) -> None:
        self._queue: deque[Operation[Any]] = deque()
        self._bytes, self._limit, self._overhead = 0, limit_bytes, overhead

    def submit(self, operation: Operation[Any]) -> None:
        """Queue a completed operation."""
        self._queue.append(operation)
        self._bytes += operation.nbytes + self._overhead
        if self._bytes > self._limit:
            self.flush()

    def force(self, handle: Handle[T]) -> T:
        """The handle's value; runs the queue up to the operation that promised it."""
        while not handle.ready and self._queue:
            self._run_first()
        return handle.value

    def flush(self) -> None:
        """Run everything queued."""
        while self._queue:
            self._run_first()

    def _run_first(self) -> None:
        operation = self._queue.popleft()
        self._bytes -= operation.nbytes + self._overhead
        run_operation(operation)


class ImmediateExecutor(Executor):
    """Runs an operation when it is submitted: for real time, and for stepping through a protocol."""

    def submit(self, operation: Operation[Any]) -> None:
        """Run the operation now."""
        run_operation(operation)

    def force(self, handle: Handle[T]) -> T:
        """The handle's value, there since its operation was submitted."""
        return handle.value


class TimingOnlyExecutor(Executor):
    """Runs nothing, ever: the timing plane alone."""

    values = False

    def submit(self, operation: Operation[Any]) -> None:
        """Forget the operation."""

    def force(self, handle: Handle[T]) -> T:
        """Refuse: there are no values. Raises ``RunError``."""
        raise RunError("a timing-only run has no values", remedy="leave out --timing-only")
