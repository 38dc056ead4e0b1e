"""The command line: a thin layer over the Python API. Commands import heavy libraries only when they run."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context

from vflsim.cli import analyze, cluster, delays, evaluate, listing, live, results, runs, sweep  # noqa: F401  each registers its commands
from vflsim.cli.app import app, complain
from vflsim.errors import VflsimError
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


app.registered_commands.sort(key=lambda each: str(each.name or getattr(each.callback, "__name__", "")))
_PATIENCE = 50_000, 20, 20
"""When the collector of garbage runs: imports leave objects, not garbage, and it would take 6 % of a short command."""

_CLOSED_PIPE = 128 + 13
"""The status of a program whose output nobody reads on: what a shell reports of one that SIGPIPE ended."""


def main() -> None:
    """Run the console script: a VflsimError becomes one message and its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ± shows ? instead of raising
            stream.reconfigure(errors="replace")
    before = gc.get_threshold()
    gc.set_threshold(*_PATIENCE)
    try:
        with noticed():
            copy_context().run(app)  # the parties' names are those of this command's scenario
    except VflsimError as error:
        complain(f"error: {error}")
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Rich and Typer end quietly then, with status 1
            ended.code = _CLOSED_PIPE
        raise
    finally:
        gc.set_threshold(*before)


def script() -> None:
    """Run the console script as a process of its own; after a command it ends at once.

    Python takes every object of PyTorch apart before it ends, which is a second of the processor. Functions for the end
    (``atexit``) run as usual, and output is written first. A process with other threads ends as usual.
    """
    status: str | int | None = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code or 0
    if not isinstance(status, int) or threading.active_count() > 1:
        sys.exit(status)
    end(status)
    sys.exit(status)
