"""Ctrl-C outside a study, which ends a command even where Python swallows its exception."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from vflsim.studies.runs.interrupt import Noticed, exit_status


@contextlib.contextmanager
def noticed() -> Iterator[None]:
    """During the body, let a Ctrl-C outside a study end the process with the usual status wherever it comes.

    Python ignores exceptions in callbacks of weak references, which importing a module has many of, and in ``__del__``.
    A command would go on there, so the process ends at that place. What else swallows the exception, such as a bare
    ``except``, ends the command where its study begins. Who ignores Ctrl-C, or handles it, keeps doing so.
    """
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before not in (signal.default_int_handler, signal.SIG_DFL) or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    handler = Noticed()

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            hook(what)
        elif signal.getsignal(signal.SIGINT) is handler:  # a study asks again by itself
            end(exit_status(KeyboardInterrupt()))

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = ignored
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


def end(status: int) -> None:
    """End the process at once, after functions for the end (``atexit``); output is written first."""
    with contextlib.suppress(OSError):  # a closed pipe
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
