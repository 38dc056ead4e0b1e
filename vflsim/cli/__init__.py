"""The command line: a thin layer over the Python API. Commands import heavy libraries only when they run."""

from __future__ import annotations

import gc
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

_PATIENCE = 50_000, 20, 20
"""When the collector of garbage runs: imports leave objects, not garbage, and it would take 6 % of a short command."""


def main() -> None:
    """Run the console script: a VflsimError becomes one message and its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ± shows ? instead of raising
            stream.reconfigure(errors="replace")
    before = gc.get_threshold()
    gc.set_threshold(*_PATIENCE)
    try:
        app()
    except VflsimError as error:
        complain(f"error: {error}")
        sys.exit(error.exit_code)
    finally:
        gc.set_threshold(*before)
