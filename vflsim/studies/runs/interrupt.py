"""Handling of Ctrl-C and SIGTERM that loses no request and lets a run write a checkpoint first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a study: Ctrl-C, and SIGTERM of batch systems and ``kill``."""


class Terminated(KeyboardInterrupt):
    """Raised when SIGTERM has ended a study."""


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status of an interrupted study, as shells have it: 128 + number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


class Noticed:
    """The handler of Ctrl-C outside a study: it raises ``KeyboardInterrupt`` and remembers that it did."""

    def __init__(self) -> None:
        self.wanted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal. Raises KeyboardInterrupt."""
        self.wanted = True
        raise KeyboardInterrupt


class Interrupt:
    """A request to end a study: Ctrl-C or SIGTERM in this process, or a message from the parent process.

    In the main thread it handles ``SIGNALS``. The first request goes to the current run if that can end by itself
    (``softened``). Otherwise, and at the second Ctrl-C, it raises ``KeyboardInterrupt``, and again at the next
    ``check``: a library may swallow the first in a callback (pydantic does). A second SIGTERM changes nothing: batch
    systems send it to a process and to its group. After SIGTERM the ``with`` block ends with ``Terminated``.
    """

    def __init__(self) -> None:
        self._wanted = self._terminated = False
        self._ask: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        early = signal.getsignal(signal.SIGINT)
        if isinstance(early, Noticed) and early.wanted:  # something has swallowed it
            raise KeyboardInterrupt
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._on_signal) for each in SIGNALS}
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)
        if self._terminated and isinstance(error, KeyboardInterrupt):
            raise Terminated from error

    @contextmanager
    def softened(self, ask: Callable[[], None]) -> Iterator[None]:
        """During the body, let the first request call ``ask``; the body then ends by itself."""
        self._ask = ask
        try:
            if self._wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._ask = None

    def wish(self) -> bool:
        """Request the end, from any thread; return whether the current run was asked to end by itself."""
        first, self._wanted, ask = not self._wanted, True, self._ask
        if first and ask is not None:
            ask()
            return True
        return False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` after a request, unless a run was asked to end by itself."""
        if self._wanted and self._ask is None:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, _: object) -> None:
        repeated = self._terminated
        self._terminated |= number == signal.SIGTERM
        if not (repeated and number == signal.SIGTERM) and not self.wish():
            raise KeyboardInterrupt
