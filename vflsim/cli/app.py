"""Shared by all commands: the application, consoles, options, error output, and formats of tables."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_type_hints

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

import vflsim
from vflsim.errors import ScenarioError, check_known, no_results
from vflsim.party_names import name_from_now_on
from vflsim.shipped import completions, scenario_file
from vflsim.studies.runs.interrupt import exit_status
from vflsim.vocabulary.execution_options import OPTIONS, ExecutionOptions, RunOptions, flag, remark
from vflsim.vocabulary.figures import FIGURE_OPTIONS

if TYPE_CHECKING:
    from vflsim.scenario.models import Scenario
    from vflsim.studies.display import Display
    from vflsim.tables import DataTable
    from vflsim.tables.formats import FormatName


class OnceCommand(TyperCommand):
    """A command that refuses a repeated option (of which only the last would count), unless the option is a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises ScenarioError for a repeated option with a single value."""
        _, _, options = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(options).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                name = max(option.opts, key=len)
                raise ScenarioError(f"{name} is given {times} times", ctx.command_path, "once", f"leave one {name}")
        return super().parse_args(ctx, args)


class Application(typer.Typer):
    """A group of commands, each of which is a :class:`OnceCommand`."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a command, as Typer does."""
        return super().command(name, **{"cls": OnceCommand, **options})


app = Application(
    name="vflsim",
    help="Compare vertical-federated-learning protocols under identical timing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
PLAIN_WIDTH = 120
"""Width in columns of output to a file or a pipe."""


def completed(incomplete: str) -> list[str]:
    """Complete the name of a scenario, in a shell."""
    return completions(incomplete)


def _must_exist(context: typer.Context, scenario: Path) -> Path:
    """Refuse a mistyped name before the imports that take seconds."""
    if not context.resilient_parsing:  # as when a shell asks for completions
        scenario_file(scenario)
    return scenario


ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help="A scenario file (YAML), or a name that `vflsim scenarios` lists.",
        metavar="SCENARIO",
        callback=_must_exist,
        autocompletion=completed,
    ),
]


def must_be_folder(context: typer.Context, results: Path | list[Path]) -> Path | list[Path]:
    """Refuse mistyped folders before the imports that take seconds."""
    for each in results if isinstance(results, list) else [results]:
        if not context.resilient_parsing and not each.is_dir():
            raise no_results(each)
    return results


ResultsFolder = Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS", callback=must_be_folder)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: training.batch=32", metavar="KEY=VALUE")
]
Protocols = Annotated[list[str] | None, typer.Option("--protocol", help="Only this protocol (may be repeated).")]
Seeds = Annotated[str | None, typer.Option(help="Seeds to run instead of the scenario's: 0:5 or [1, 7].")]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")]
OverFile = Annotated[Path | None, typer.Option(help="A YAML file with keys and their values, besides those of --over.")]
Reported = Annotated[
    bool, typer.Option("--report/--no-report", help="Write RESULTS/report.html, the results as one page.")
]
Baseline = Annotated[
    str | None,
    typer.Option(help="The protocol that the others are compared with (default: the first that waits for all)."),
]


def console(stderr: bool = False) -> Console:
    """Make the console that commands print to."""
    from vflsim.tables.terminal import SafeConsole

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return SafeConsole(stderr=stderr, width=None if terminal else PLAIN_WIDTH)


def say(text: str) -> None:
    """Print a line, wrapped to the console."""
    from vflsim.tables import terminal

    terminal.say(console(), text)


def load(
    scenario: Path, overrides: list[str] | None, seeds: str | None = None, protocols: Sequence[str] | None = None
) -> Scenario:
    """Load a scenario file, with the overrides of the command line, and some of its ``protocols`` (default: all)."""
    loaded = vflsim.load(scenario, overriding(overrides, seeds))
    name_from_now_on(loaded.document.raw)
    if not protocols:
        return loaded
    from vflsim.scenario.load import narrowed

    return narrowed(loaded, protocols)


def overriding(overrides: list[str] | None, seeds: str | None = None, over: Sequence[str] = ()) -> list[str]:
    """Return ``--set`` and ``--seeds`` as overrides, in order; ``over`` are keys that a sweep sets after them.

    Raises ScenarioError if one of them would undo an earlier one: most likely a mistake.
    """
    texts = [*(overrides or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    names = [*(f"--set {each}" for each in overrides or []), *([f"--seeds {seeds}"] if seeds is not None else [])]
    names += [f"--over {key}" for key in over]
    pairs = [tuple(part.strip() for part in each.partition("=")[::2]) for each in (*texts, *over)]
    for later, (key, _) in enumerate(pairs):
        for earlier, (before, value) in enumerate(pairs[:later]):
            if f"{before}.".startswith(f"{key}.") and value != "null":  # removing twice from a list removes two entries
                raise ScenarioError(f"would undo {names[earlier]}", names[later], "every key once", "leave one of them")
    return texts


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
    """Raise ScenarioError for a name that is not among those ``known``."""
    check_known(name, [str(each) for each in known], what, where)  # type: ignore[attr-defined]


def complain(text: str) -> None:
    """Print a line to the standard error."""
    from vflsim.tables import terminal

    terminal.say(console(stderr=True), text)


def option(name: str) -> Any:
    """Return an option of execution as Typer takes it."""
    kind, wording = OPTIONS[name]
    flags = (flag(name),) if kind is bool else ()
    in_text = str if str in get_args(kind) and wording.number is not None else kind
    return Annotated[in_text, typer.Option(*flags, help=wording.help, metavar=wording.metavar)]


if TYPE_CHECKING:
    Workers: TypeAlias = int
    Threads: TypeAlias = int
else:
    Workers, Threads = option("workers"), option("threads")
EXECUTION = tuple(OPTIONS)
"""The names of all options of execution."""


def with_options(name: str, given: Sequence[Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options in place of its parameter ``name``, which gets them as one mapping."""

    def give(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**arguments: Any) -> None:
            values = {each.name: arguments.pop(each.name) for each in given}
            command(**{name: values}, **arguments)

        hints, parameters = get_type_hints(command, include_extras=True), list[Parameter]()
        for parameter in signature(command).parameters.values():
            if parameter.name == name:
                parameters += given
            else:
                parameters.append(parameter.replace(annotation=hints[parameter.name]))
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return give


def with_execution(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of execution that are named, in place of its parameter ``execution``.

    The command gets them as one mapping, ``ExecutionOptions``.
    """
    return with_options("execution", [_parameter(name) for name in names])


def of_figures() -> list[Parameter]:
    """Return the options of figures, each as a parameter of a command."""
    return [
        Parameter(
            option.parameter,
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                list[str] | None if option.repeated else str | None,
                typer.Option(option.flag, help=option.help, metavar=option.metavar),
            ],
        )
        for option in FIGURE_OPTIONS.values()
    ]


def _parameter(name: str) -> Parameter:
    default = OPTIONS[name][1].default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option(name))


def options_of(execution: ExecutionOptions, tell: Callable[[str], None]) -> RunOptions:
    """Read the options of execution, and ``tell`` where the wished device is missing. Raises ScenarioError."""
    options = RunOptions.of(**execution)
    if note := remark(execution["device"], options):
        tell(note)
    return options


@contextmanager
def until_interrupted(display: Display, told: Callable[[], str]) -> Iterator[None]:
    """Show a display during the body; after Ctrl-C or SIGTERM complain what is ``told``, and exit as shells expect."""
    try:
        with display:
            yield
    except KeyboardInterrupt as interruption:
        complain(told())
        raise typer.Exit(exit_status(interruption)) from None


def again() -> str:
    """Return the given command with --resume, and without --anew, which would undo it."""
    return shlex.join(["vflsim", *(part for part in sys.argv[1:] if part not in ("--resume", "--anew")), "--resume"])


# --- results --------------------------------------------------------------------------------------------------------


Trust = Annotated[
    bool, typer.Option("--trust", help="Import the modules that the results name, which runs their code.")
]
OnlySeeds = Annotated[list[int] | None, typer.Option("--seed", help="Only this seed (may be repeated).")]


Latex = Annotated[
    bool, typer.Option("--latex", help="Print the tables for LaTeX, with booktabs and siunitx, and nothing else.")
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown, and nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the tables as CSV, cells and their numbers, and nothing else.")]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Show this at every point of a sweep: a metric (test_loss), a measure (rounds, bytes, one of your own), "
        "or a percentile of the rounds (p99). Of a budget: rank by this metric."
    ),
]
Html = Annotated[bool, typer.Option("--html", help="Print the tables as HTML, and nothing else.")]


def form_of(command: str, latex: bool, markdown: bool, csv: bool, html: bool) -> FormatName | None:
    """Return the format that was asked for, if any. Raises ScenarioError for several."""
    wanted: dict[FormatName, bool] = {"latex": latex, "markdown": markdown, "csv": csv, "html": html}
    names = [name for name, wished in wanted.items() if wished]
    if len(names) > 1:
        options = " ".join(f"--{name}" for name in names)
        raise ScenarioError("several formats at once", f"vflsim {command} {options}", "one of them")
    return names[0] if names else None


def show(page: Console, tables: Sequence[DataTable], form: FormatName | None) -> None:
    """Print tables for people, or in a format, as it is and without colours, to the standard output."""
    if form is not None:
        from vflsim.tables.formats import written

        sys.stdout.write(written(tables, form))
        return
    for number, table in enumerate(tables):
        if number:
            page.print()
        page.print(table)
