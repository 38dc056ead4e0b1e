"""The command line: a thin layer over the Python API. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys

from vflsim.cli import analyze, data, delays, kinds, results, runs, sweep, tune  # noqa: F401  each adds its commands to the application
from vflsim.cli.app import app, complain
from vflsim.errors import VflsimError


def main() -> None:
    """The console script: errors of ours are one message, and the exit status says whose fault it was."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show ± shows ? instead of ending the run
            stream.reconfigure(errors="replace")
    try:
        app()
    except VflsimError as error:
        complain(f"error: {error}")
        sys.exit(error.exit_code)
