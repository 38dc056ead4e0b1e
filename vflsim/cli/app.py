"""What every command shares: the application, its consoles, options and complaints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

import vflsim
from vflsim.errors import ScenarioError

if TYPE_CHECKING:
    from vflsim.scenario.models import Scenario


class OnceCommand(TyperCommand):
    """A command that refuses an option given twice, of which only the last would count; but for those that add up."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. Raises ScenarioError for an option with a value that stands there more than once."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                name = max(option.opts, key=len)
                raise ScenarioError(f"{name} is given {times} times", ctx.command_path, "once", f"leave one {name}")
        return super().parse_args(ctx, args)


class Application(typer.Typer):
    """A group of commands, each of which is a :class:`OnceCommand`."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """As of Typer."""
        return super().command(name, **{"cls": OnceCommand, **options})


app = Application(
    name="vflsim",
    help="Compare vertical-federated-learning protocols under identical timing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
PLAIN_WIDTH = 120
"""Columns of a page that no terminal shows: a file, a pipe."""

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario file (YAML).", metavar="SCENARIO")]
ResultsFolder = Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: training.batch=32", metavar="KEY=VALUE")
]
Seeds = Annotated[str | None, typer.Option(help="Seeds to run instead of the scenario's: 0:5 or [1, 7].")]


def console(stderr: bool = False) -> Console:
    """The page that commands print to."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else PLAIN_WIDTH, highlight=False, markup=False)


def say(text: str) -> None:
    """Print a line, wrapped to the page."""
    from vflsim.results import layout

    layout.say(console(), text)


def load(scenario: Path, overrides: list[str] | None, seeds: str | None = None) -> Scenario:
    """The scenario of a file, with what the command line overrides."""
    return vflsim.load(scenario, overriding(overrides, seeds))


def overriding(overrides: list[str] | None, seeds: str | None = None, over: Sequence[str] = ()) -> list[str]:
    """``--set`` and ``--seeds`` as overrides, in order; ``over`` are keys that a sweep sets after them.

    Raises ScenarioError where one of them would undo an earlier one, which somebody has forgotten, then.
    """
    said = [*(overrides or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    names = [*(f"--set {each}" for each in overrides or []), *([f"--seeds {seeds}"] if seeds is not None else [])]
    names += [f"--over {key}" for key in over]
    pairs = [tuple(part.strip() for part in each.partition("=")[::2]) for each in (*said, *over)]
    for later, (key, _) in enumerate(pairs):
        for earlier, (before, value) in enumerate(pairs[:later]):
            if (
                f"{before}.".startswith(f"{key}.") and value != "null"
            ):  # what is removed twice from a list is two things
                raise ScenarioError(f"would undo {names[earlier]}", names[later], "every key once", "leave one of them")
    return said


def _show_version(wanted: bool) -> None:
    if wanted:
        console().print(f"vflsim {vflsim.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def known(name: str, known: object, what: str, where: str) -> None:
    """Refuse a name that is not among those ``known``."""
    from vflsim.scenario.problems import nearest

    names = [str(each) for each in known]  # type: ignore[attr-defined]
    if name not in names:
        remedy = nearest(name, names) or "use one of them"
        raise ScenarioError(f"there is no {what} {name!r}", where, ", ".join(names), remedy)


def complain(text: str) -> None:
    """Print a line to the standard error."""
    from vflsim.results import layout

    layout.say(console(stderr=True), text)
