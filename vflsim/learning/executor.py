"""Executors: when the work behind a handle is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vflsim.errors import RunError, VflsimError
from vflsim.learning.operations import Handle, Operation

T = TypeVar("T")


def run_operation(operation: Operation[Any]) -> None:
    """Run ``operation``; an error found late names the party, the round and the virtual time it belongs to."""
    _named([operation], operation.run)


def run_together(operations: Sequence[Operation[Any]]) -> None:
    """Run operations that are alike by their kernel; an error that it cannot place is that of the first."""
    kernel = operations[0].kernel
    assert kernel is not None, "only what has a kernel is alike"
    _named(operations, lambda: kernel.run(operations))


def _named(operations: Sequence[Operation[Any]], run: Callable[[], None]) -> None:
    first = operations[0]
    try:
        run()
    except VflsimError as error:
        if error.where or not first.where:
            raise
        raise type(error)(error.what, first.where, error.allowed, error.remedy) from error
    except Exception as error:  # whatever a model of the user's may raise
        others = f" (with {len(operations) - 1} others)" if len(operations) > 1 else ""
        raise RunError(f"{first.kind}{others} failed: {error}", first.where) from error


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
