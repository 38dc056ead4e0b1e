"""The options of execution on the command line: all in ``vflsim run``, ``sweep`` and ``tune``, some in others."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_type_hints

import typer

from vflsim.vocabulary.execution_options import OPTIONS, flag


def option(name: str) -> Any:
    """Return an option of execution as Typer takes it."""
    kind, said = OPTIONS[name]
    flags = (flag(name),) if kind is bool else ()
    in_text = str if str in get_args(kind) and float in get_args(kind) else kind
    return Annotated[in_text, typer.Option(*flags, help=said.help, metavar=said.metavar)]


if TYPE_CHECKING:
    Workers: TypeAlias = int
    Threads: TypeAlias = int
else:
    Workers, Threads = option("workers"), option("threads")
EXECUTION = tuple(OPTIONS)
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
    default = OPTIONS[name][1].default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option(name))


def again() -> str:
    """Return the given command with --resume, and without --anew, which would undo it."""
    return shlex.join(["vflsim", *(part for part in sys.argv[1:] if part not in ("--resume", "--anew")), "--resume"])
