"""Processes that have imported everything already: forks of one warm process, in place of seconds of imports for each.

They begin as ``spawn`` begins a process, with a fresh stack and only the pipes that they are given.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["vflsim.cli.app", "vflsim.studies.display", "sklearn.datasets"])


def command(errors: Path, *argv: object) -> BaseProcess:
    """Start ``vflsim`` with these arguments in its own process; the file ``errors`` receives its standard error."""
    process = CONTEXT.Process(target=_main, args=([*map(str, argv)], str(errors)))
    process.start()
    return process


def _main(argv: list[str], errors: str) -> None:
    with open(os.devnull, "w") as nothing, open(errors, "w") as file:
        os.dup2(nothing.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from vflsim.cli import main

    sys.argv = ["vflsim", *argv]
    main()
