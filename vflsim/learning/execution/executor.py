"""Executors decide when the work behind a handle is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from vflsim.errors import RunError, VflsimError
from vflsim.learning.execution.operations import Handle, Operation

T = TypeVar("T")


@contextmanager
def placed(operation: Operation[Any], others: int = 0) -> Iterator[None]:
    """Have an error that is found late name the party, the round and the virtual time of its ``operation``."""
    try:
        yield
    except VflsimError as error:
        if error.where or not operation.where:
            raise
        raise type(error)(error.what, operation.where, error.allowed, error.remedy) from error
    except Exception as error:  # a model of the user's may raise anything
        together = f" (with {others} others)" if others else ""
        raise RunError(f"{operation.kind}{together} failed: {error}", operation.where) from error


def run_operation(operation: Operation[Any]) -> None:
    """Run ``operation``."""
    with placed(operation):
        operation.run()


def run_together(operations: Sequence[Operation[Any]]) -> None:
    """Run like operations by their kernel; an error without a place gets that of the first."""
    kernel = operations[0].kernel
    assert kernel is not None, "only operations with a kernel are alike"
    with placed(operations[0], len(operations) - 1):
        kernel.run(operations)


class Executor(ABC):
    """Takes operations in the order in which they complete in virtual time.

    Invariants: each party's operations run in the order submitted; an operation runs at most once; work that is
    abandoned is never submitted, and never runs.
    """

    values = True
    """Whether handles ever hold values (``False``: timing only)."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """What is around operations that run one after the other, with nothing of the timing plane in between."""

    @abstractmethod
    def submit(self, operation: Operation[Any]) -> None:
        """Queue a completed operation."""

    @abstractmethod
    def force(self, handle: Handle[T]) -> T:
        """Run what the handle depends on, and return its value."""

    def flush(self) -> None:
        """Run everything queued (nothing, where nothing ever waits)."""
        return None


class ImmediateExecutor(Executor):
    """Runs an operation when it is submitted: for real time, and for stepping through a protocol."""

    def submit(self, operation: Operation[Any]) -> None:
        """Run the operation now."""
        with self.around():
            run_operation(operation)

    def force(self, handle: Handle[T]) -> T:
        """Return the handle's value, which was set when its operation was submitted."""
        return handle.value


class TimingOnlyExecutor(Executor):
    """Runs nothing, ever: the timing plane alone."""

    values = False

    def submit(self, operation: Operation[Any]) -> None:
        """Forget the operation."""

    def force(self, handle: Handle[T]) -> T:
        """Refuse: there are no values. Raises ``RunError``."""
        raise RunError("a timing-only run has no values", remedy="leave out --timing-only")
