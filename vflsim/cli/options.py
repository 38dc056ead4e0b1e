"""The options of execution on the command line: all in ``vflsim run``, ``sweep`` and ``tune``, some in others."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from vflsim.vocabulary.execution_options import DEFAULTS, DeviceWish, EngineName

Workers = Annotated[int, typer.Option(help="Number of runs at a time, each in its own process.", metavar="N")]
Threads = Annotated[int, typer.Option(help="PyTorch threads per run; the last digits depend on it.", metavar="N")]
_ANNOTATED: dict[str, Any] = {
    "workers": Workers,
    "resume": Annotated[
        bool, typer.Option("--resume", help="Keep finished runs and continue the others; refuse other scenarios.")
    ],
    "anew": Annotated[bool, typer.Option("--anew", help="Keep no earlier run: move all results there aside.")],
    "checkpoint_every": Annotated[
        str, typer.Option(help="Wall-clock time between checkpoints of a run; off for none.", metavar="TIME")
    ],
    "eager": Annotated[bool, typer.Option("--eager", help="Train clients one by one instead of batched.")],
    "device": Annotated[DeviceWish, typer.Option(help="Device of training; auto: cuda if available.")],
    "threads": Threads,
    "tf32": Annotated[bool, typer.Option("--tf32", help="Let a GPU round the factors of float32 products (TF32).")],
    "engine": Annotated[
        EngineName,
        typer.Option(help="What executes runs: processes of this machine, or a Ray cluster (vflsim\\[ray])."),
    ],
    "address": Annotated[
        str | None,
        typer.Option(help="Ray's cluster: auto, or ray://host:10001 (default: one starts on this machine)."),
    ],
    "num_cpus": Annotated[float, typer.Option(help="CPUs of a run on Ray.", metavar="N")],
    "num_gpus": Annotated[float | None, typer.Option(help="GPUs of a run on Ray (default: 1 with cuda).", metavar="N")],
    "max_retries": Annotated[
        int, typer.Option(help="How often a run begins again if its Ray worker dies.", metavar="N")
    ],
}
EXECUTION = tuple(DEFAULTS)
"""The names of all options of execution."""


def with_execution(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of execution that are named, in place of its parameter ``execution``.

    The command gets them as one mapping, ``ExecutionOptions``.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            command(execution={name: given.pop(name) for name in names}, **given)

        hints, parameters = get_type_hints(command, include_extras=True), list[Parameter]()
        for own in signature(command).parameters.values():
            if own.name == "execution":
                parameters += [_parameter(name) for name in names]
            else:
                parameters.append(own.replace(annotation=hints[own.name]))
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return give


def _parameter(name: str) -> Parameter:
    default = dict(DEFAULTS)[name]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=_ANNOTATED[name])


def again() -> str:
    """Return the given command with --resume, and without --anew, which would undo it."""
    return shlex.join(["vflsim", *(part for part in sys.argv[1:] if part not in ("--resume", "--anew")), "--resume"])
