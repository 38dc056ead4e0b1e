"""Options that say how runs are carried out, shared by ``vflsim run``, ``sweep`` and ``tune``."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Literal

import typer

Workers = Annotated[int, typer.Option(help="Runs side by side, each in a process of its own.", metavar="N")]
Resume = Annotated[bool, typer.Option("--resume", help="Keep the runs that have finished, and go on with the others.")]
CheckpointEvery = Annotated[
    str, typer.Option(help="Wall-clock time between checkpoints of a run; off for none.", metavar="TIME")
]
Eager = Annotated[bool, typer.Option("--eager", help="Train every client by itself, nothing batched.")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where runs train; auto: cuda if there is one.")]
Threads = Annotated[int, typer.Option(help="PyTorch's threads of a run; the last digits depend on it.", metavar="N")]

Tf32 = Annotated[bool, typer.Option("--tf32", help="Let a GPU round the factors of float32 products (TF32).")]


def again() -> str:
    """The command that was given, as it goes on where it ended."""
    return shlex.join(["vflsim", *(part for part in sys.argv[1:] if part != "--resume"), "--resume"])
