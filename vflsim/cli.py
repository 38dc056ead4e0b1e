"""The command line: a thin layer over the Python API. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import vflsim
from vflsim.errors import DataError, ResultsError, ScenarioError, VflsimError

if TYPE_CHECKING:
    from vflsim.scenario.models import Scenario

app = typer.Typer(
    name="vflsim",
    help="Compare vertical-federated-learning protocols under identical timing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets that scenarios can name.", no_args_is_help=True)
app.add_typer(data_app, name="data")
INTERRUPTED = 130
PLAIN_WIDTH = 120
"""Columns of a page that no terminal shows: a file, a pipe."""

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario file (YAML).", metavar="SCENARIO")]
ResultsFolder = Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: training.batch=32", metavar="KEY=VALUE")
]
Seeds = Annotated[str | None, typer.Option(help="Seeds to run instead of the scenario's: 0:5 or [1, 7].")]


def _console(stderr: bool = False) -> Console:
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else PLAIN_WIDTH, highlight=False, markup=False)


def _say(text: str) -> None:
    from vflsim.results.layout import say

    say(_console(), text)


def _load(scenario: Path, overrides: list[str] | None, seeds: str | None = None) -> Scenario:
    return vflsim.load(scenario, [*(overrides or []), *([f"seeds={seeds}"] if seeds is not None else [])])


def _show_version(wanted: bool) -> None:
    if wanted:
        _console().print(f"vflsim {vflsim.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    scenario: ScenarioFile,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME, or NAME-timing).")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")] = False,
) -> None:
    """Run every protocol of a scenario with every seed, and compare them."""
    loaded = _load(scenario, overrides, seeds)
    from vflsim.runner.study import default_folder, run_study
    from vflsim.terminal import Display, failure, interrupted, show_comparison

    console, folder = _console(), out_folder or default_folder(loaded, timing_only)
    display = Display(console, loaded)
    try:
        with display:
            study = run_study(loaded, folder, timing_only=timing_only, watcher=display)
    except KeyboardInterrupt:
        _complain(interrupted(display, folder))
        raise typer.Exit(INTERRUPTED) from None
    show_comparison(console, study, folder)
    for (protocol, seed), error in study.failures.items():
        _complain(failure(protocol, seed, error, study.results.run(protocol, seed).info.counts["rounds"]))
    if study.failures:
        raise typer.Exit(1)


@app.command()
def check(scenario: ScenarioFile, overrides: Overrides = None, seeds: Seeds = None) -> None:
    """Say whether a scenario is valid, what it would run, and how big that is."""
    loaded = _load(scenario, overrides, seeds)
    from vflsim.runner.checks import read_and_check
    from vflsim.runner.expected import expectation
    from vflsim.terminal import expectation_table

    try:
        data = read_and_check(loaded)
    except DataError:
        _say(f"{scenario}: the scenario itself is valid, but its data cannot be used")
        raise
    found = [expectation(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols]
    console, runs = _console(), len(loaded.protocols) * len(loaded.seeds)
    console.print(Text.assemble((f"{scenario} is valid", "green")), soft_wrap=True)
    _say(f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds = {runs} runs")
    _say(f"data: {data.of(loaded.training).summary()}")
    console.print()
    console.print(expectation_table(loaded, found))


@app.command()
def plot(
    results: ResultsFolder,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this figure (may be repeated).")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where figures go (default: the folder).")] = None,
) -> None:
    """Draw the figures of a results folder."""
    from vflsim.plotting import PLOTS, draw, save_all
    from vflsim.results.read import Results
    from vflsim.results.write import write_file

    for name in kind or ():
        _known(name, PLOTS, "figure", "vflsim plot --kind")
    opened = Results.open(results)
    if kind:
        figures = [(name, draw(name, opened).png()) for name in kind]
        paths = [write_file((out_folder or results) / f"{name}.png", picture) for name, picture in figures]
    else:
        paths = save_all(opened, out_folder)
    for path in paths:
        _say(str(path))


@app.command()
def compare(results: Annotated[list[Path], typer.Argument(help="Results folders.", metavar="RESULTS...")]) -> None:
    """Print the comparison of one or several results folders."""
    from vflsim.results.read import Results
    from vflsim.results.report import comparison_table

    tables = [(folder, comparison_table(Results.open(folder))) for folder in results]
    console = _console()
    for number, (folder, table) in enumerate(tables):
        if len(tables) > 1:
            table.title = f"{table.title} ({folder})"
        if number:
            console.print()
        console.print(table)


@app.command()
def verify(results: ResultsFolder) -> None:
    """Check the invariants of finished runs: one computation at a time, bytes that add up, staleness in bounds, …."""
    from vflsim.results.read import Results
    from vflsim.results.verify import verify_folder

    problems = verify_folder(results)
    for problem in problems:
        _say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        raise ResultsError(count, str(results), "finished runs that keep every invariant", "run the scenario again")
    _say(f"{len(Results.open(results).runs)} runs in {results} are sound")


@app.command("list")
def list_kinds(
    what: Annotated[str | None, typer.Argument(help="delays, protocols, …; everything if left out.")] = None,
) -> None:
    """List what a scenario can say: delays, compute models, networks, activations, protocols, models, …."""
    from vflsim.scenario.tables import TABLES

    if what is not None:
        _known(what, TABLES, "list", "vflsim list")
    console = _console()
    for name, classes in TABLES.items():
        if what in (None, name):
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(max_width=30)
            table.add_column()
            for entry in classes:
                fields = [(key, field) for key, field in entry.model_fields.items() if key != "kind"]
                ordered = sorted(fields, key=lambda pair: not pair[1].is_required())
                keys = ", ".join(key if field.is_required() else f"{key}?" for key, field in ordered)
                kind = str(entry.model_fields["kind"].default)
                said = Text.assemble((kind, "cyan"), f"{{{keys}}}" if keys else "")
                table.add_row(said, Text((entry.__doc__ or "").strip().splitlines()[0].replace("``", "")))
            console.print(Text(name, style="bold"))
            console.print(Padding(table, (0, 0, 0, 2)))
    console.print(Text("A key with ? may be left out.", style="dim"))


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from vflsim.scenario.load import schema as json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


@data_app.command("list")
def data_list_command() -> None:
    """List the data sets that a scenario can name, and where each was found."""
    from vflsim.learning.data.download import data_list
    from vflsim.learning.data.files import folders
    from vflsim.results.layout import TextTable

    rows, console = data_list(), _console()
    header = ("name", "rows", "features", "classes", "task", "licence", "where")
    cells = [
        (row.name, f"{row.rows:,}", str(row.features), str(row.classes), row.task, row.licence, row.where)
        for row in rows
    ]
    console.print(TextTable(header, cells, left=(0, 4, 5, 6)))
    console.print()
    sources = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        sources.add_row(Text(row.name), Text(row.source))
    console.print(sources)
    if any(row.where == "absent" for row in rows):
        searched = ", ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders())
        console.print()
        _say(f"absent: not in {searched}; fetch it with vflsim data get NAME, or set VFLSIM_DATA to its folder")


@data_app.command("get")
def data_get_command(
    name: str, folder: Annotated[Path | None, typer.Option("--to", help="Folder (default: the cache).")] = None
) -> None:
    """Download a data set's original files and check their checksums."""
    from vflsim.learning.data.download import data_get

    paths = data_get(name, folder, progress=sys.stdout.isatty())
    for path in paths:
        _say(str(path))
    if not paths:
        _say(f"{name} comes with scikit-learn: there is nothing to fetch")


def _known(name: str, known: object, what: str, where: str) -> None:
    """Refuse a name that is not among those ``known``."""
    from vflsim.scenario.problems import nearest

    names = [str(each) for each in known]  # type: ignore[attr-defined]
    if name not in names:
        remedy = nearest(name, names) or "use one of them"
        raise ScenarioError(f"there is no {what} {name!r}", where, ", ".join(names), remedy)


def _complain(text: str) -> None:
    from vflsim.results.layout import say

    say(_console(stderr=True), text)


def main() -> None:
    """The console script: errors of ours are one message, and the exit status says whose fault it was."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show ± shows ? instead of ending the run
            stream.reconfigure(errors="replace")
    try:
        app()
    except VflsimError as error:
        _complain(f"error: {error}")
        sys.exit(error.exit_code)
