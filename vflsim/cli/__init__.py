"""The command line: a thin layer over the Python API. Commands import heavy libraries only when they run."""

import gc
import sys
import threading
from contextvars import copy_context

from vflsim.cli import analyze, cluster, delays, evaluate, listing, live, results, runs, sweep, timing  # noqa: F401  each registers its commands
from vflsim.cli.app import app, complain
from vflsim.cli.ctrl_c import end, noticed
from vflsim.errors import VflsimError

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
