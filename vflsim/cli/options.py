"""Execution options of ``vflsim run``, ``sweep`` and ``tune``."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Literal

import typer

Workers = Annotated[int, typer.Option(help="Number of runs at a time, each in its own process.", metavar="N")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep finished runs and continue the others; refuse other scenarios.")
]
Anew = Annotated[bool, typer.Option("--anew", help="Keep no earlier run: move all results there aside.")]
CheckpointEvery = Annotated[
    str, typer.Option(help="Wall-clock time between checkpoints of a run; off for none.", metavar="TIME")
]
Eager = Annotated[bool, typer.Option("--eager", help="Train clients one by one instead of batched.")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Device of training; auto: cuda if available.")]
Threads = Annotated[int, typer.Option(help="PyTorch threads per run; the last digits depend on it.", metavar="N")]

Tf32 = Annotated[bool, typer.Option("--tf32", help="Let a GPU round the factors of float32 products (TF32).")]

Engine = Annotated[
    Literal["processes", "ray"],
    typer.Option(help="What executes runs: processes of this machine, or a Ray cluster (vflsim[ray])."),
]
Address = Annotated[
    str | None, typer.Option(help="Ray's cluster: auto, or ray://host:10001 (default: one starts on this machine).")
]
NumCpus = Annotated[float, typer.Option(help="CPUs of a run on Ray.", metavar="N")]
NumGpus = Annotated[float | None, typer.Option(help="GPUs of a run on Ray (default: 1 with cuda).", metavar="N")]
MaxRetries = Annotated[int, typer.Option(help="How often a run begins again if its Ray worker dies.", metavar="N")]


def again() -> str:
    """Return the given command with --resume, and without --anew, which would undo it."""
    return shlex.join(["vflsim", *(part for part in sys.argv[1:] if part not in ("--resume", "--anew")), "--resume"])
