"""The command line: a thin layer over the Python API. Commands import heavy libraries only when they run."""

from __future__ import annotations

import sys

from vflsim.cli import (  # noqa: F401  each registers its commands
    analyze,
    calibrate,
    check,
    cluster,
    compare,
    data,
    delays,
    evaluate,
    explain,
    kinds,
    live,
    plot,
    report,
    results,
    runs,
    scenarios,
    sweep,
    tune,
)
from vflsim.cli.app import app, complain
from vflsim.errors import VflsimError


def main() -> None:
    """Run the console script: a VflsimError becomes one message and its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ± shows ? instead of raising
            stream.reconfigure(errors="replace")
    try:
        app()
    except VflsimError as error:
        complain(f"error: {error}")
        sys.exit(error.exit_code)
