"""``vflsim run``, ``scenarios`` and ``new``: run a scenario, list those that there are, and start one."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vflsim.cli.app import (
    EXECUTION,
    Overrides,
    Protocols,
    Reported,
    ScenarioFile,
    Seeds,
    TimingOnly,
    again,
    app,
    complain,
    completed,
    console,
    load,
    say,
    until_interrupted,
    with_execution,
)
from vflsim.cli.results import report_on
from vflsim.errors import ScenarioError
from vflsim.results.store.folder import write_whole
from vflsim.shipped import TEMPLATE, folder_name, result_name, scenario_file, shipped, started, title
from vflsim.vocabulary.execution_options import ExecutionOptions, RunOptions, remark

if TYPE_CHECKING:
    from rich.console import Console

    from vflsim.results.read import Results
    from vflsim.scenario.models import Scenario
    from vflsim.studies.pool import Study


@app.command()
@with_execution(*EXECUTION)
def run(
    scenario: ScenarioFile,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go (default: results/NAME, or NAME-timing).")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    timing_only: TimingOnly = False,
    path: Annotated[
        Literal["auto", "event", "vectorised"],
        typer.Option(help="How to simulate: by arrays (vectorised: fast) where possible, or one way for all."),
    ] = "auto",
    *,
    execution: ExecutionOptions,
    reported: Reported = True,
) -> None:
    """Run every protocol of a scenario with every seed, and compare them.

    With --protocol some of them; runs of the others stay in the results if they fit the scenario.
    """
    loaded = load(scenario, overrides, seeds)
    from vflsim.scenario.load import quickened
    from vflsim.studies.display import Display
    from vflsim.studies.runs.store import chosen
    from vflsim.studies.study import default_folder, run_study

    page = console()
    with page.status("loading PyTorch …") if page.is_terminal else nullcontext():
        options = RunOptions.of(**execution)
    looked_at, loaded = loaded, quickened(loaded, options.quick)
    folder = out_folder or default_folder(loaded, timing_only)
    loaded = chosen(loaded, protocol or (), folder, timing_only, options)
    display = Display(page, loaded)
    if note := remark(execution["device"], options):
        say(note)
    if options.quick:
        _first_look(page, looked_at, loaded)
    with until_interrupted(display, lambda: display.interrupted(again(), folder)):
        study = run_study(loaded, folder, timing_only=timing_only, path=path, options=options, watcher=display.alone)
    present(page, study, folder, reported)
    if options.quick:
        _first_look(page, looked_at, loaded)


def _first_look(page: Console, whole: Scenario, look: Scenario) -> None:
    """Say that one seed cannot order protocols, and how to run the others."""
    words = [word for word in sys.argv[1:] if word != "--quick"]
    seeds, more = len(whole.seeds), "" if len(whole.seeds) > 1 else " --seeds 0:5"
    text = (
        f"QUICK LOOK, {look.name}: seed {look.seeds[0]} alone{f' of {seeds}' * (seeds > 1)}. One seed cannot order "
        f"protocols. The whole study: {shlex.join(['vflsim', *words])}{more}"
    )
    page.print(Text(text, style="bold yellow"), soft_wrap=not page.is_terminal)


def present(page: Console, study: Study, folder: Path, reported: bool, rerun: str | None = None) -> None:
    """Print a study's comparison and its failures, and write its report if it is to be ``reported``.

    Exits as ``conclude`` does; the command ``rerun`` (default: ``again``) runs failed runs again.
    """
    from vflsim.studies.texts import failure, show_comparison

    show_comparison(page, study, folder)
    if reported:
        report_on(study.results)
    for (protocol, seed), error in study.failures.items():
        complain(failure(protocol, seed, error, study.results))
    conclude([study.results], rerun or again())


def conclude(studies: Sequence[Results], rerun: str) -> None:
    """Exit with status 1 if there are failed runs, kept ones among them, or metrics that no model can have.

    Prints the command that runs failed runs again, unless all of them diverged: those would do so again.
    """
    from vflsim.results.tables.footnotes import improper_notes

    failed = [run for results in studies for run in results.failed]
    improper = [note for results in studies for note in improper_notes(results)]
    for note in improper:
        complain(f"error: {note}")
    if any(not run.diverged for run in failed):
        complain(f"rerun failed runs with: {rerun}")
    if failed or improper:
        raise typer.Exit(1)


@app.command()
def scenarios() -> None:
    """List the scenarios that come with vflsim; run one by its name."""
    table = Table.grid(padding=(0, 2, 0, 0))
    known = shipped()
    for name, file in known.items():
        table.add_row(Text(name, style="cyan"), Text(title(file)))
    page = console()
    page.print(Padding(table, (0, 0, 1, 0)))
    say("run one: vflsim run quickstart; make one your own: vflsim new my_study --from quickstart")
    if known:
        say(f"the files: {next(iter(known.values())).parent}")


DATA_FILES = (".csv", ".csv.gz", ".parquet", ".npz")
"""Endings by which `--from` tells data from scenarios."""


@app.command()
def new(
    name: Annotated[
        str | None, typer.Argument(help="The scenario's name (default: that of the file).", metavar="[NAME]")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Copy this scenario instead, or write one about this CSV or Parquet file.",
            metavar="SCENARIO|TABLE",
            autocompletion=completed,
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Of a table: the column to predict.", metavar="COLUMN")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write (default: NAME.yaml).", metavar="FILE")] = None,
) -> None:
    """Write a commented scenario to start from.

    About a table, with --from and --label: its comments say what the columns hold, which cells are empty, which classes
    are rare. It can be run as it is.
    """
    table = source if source is not None and source.name.endswith(DATA_FILES) else None
    if label is not None and table is None:
        raise ScenarioError("there is no table", "--label", "with --from TABLE", "name the table, or leave it out")
    named = out or table
    if name is None and named is None:
        raise ScenarioError("the scenario has no name", "vflsim new", "vflsim new NAME, or --out NAME.yaml")
    name = name or result_name(named or Path())
    file = out or Path(f"{name}.yaml")
    if file.exists():
        raise ScenarioError("this file exists", str(file), "a new name", "choose another name, or remove the file")
    if table is not None:
        from vflsim.scenario.load import load as checked

        text = _about(table, label, name, file)
        checked(text)
    else:
        try:
            folder_name(name)
        except ValueError as error:
            what, _, rest = str(error).partition("; allowed: ")
            raise ScenarioError(what, "NAME", *rest.split("; remedy: ")) from None
        begin = TEMPLATE if source is None else scenario_file(source)
        if source is not None:
            load(begin, None)
        text = started(name, begin)
        _copy_companions(begin, text, file.parent)
    write_whole(file, text)
    say(f"{file}: edit it, then vflsim check {file}, vflsim run {file}")


def _copy_companions(begin: Path, text: str, folder: Path) -> None:
    """Copy the data and modules that a scenario names and that stand beside it.

    Raises ScenarioError where ``folder`` has another file of the name; files of equal bytes stay.
    """
    candidates = (each for each in begin.parent.iterdir() if each.suffix not in {".yaml", ".md"} and each.is_file())
    named = [each for each in candidates if each.name in text or (each.suffix == ".py" and f'"{each.stem}:' in text)]
    for each in named:
        copy = folder / each.name
        if copy.exists() and copy.read_bytes() != each.read_bytes():
            remedy = "choose another folder with --out, or remove the file"
            raise ScenarioError("another file has this name", str(copy), f"a copy of {each}", remedy)
        if not copy.exists():
            shutil.copyfile(each, copy)


def _about(table: Path, label: str | None, name: str, file: Path) -> str:
    """Write a scenario about a table, to be kept in ``file``. Raises ScenarioError without ``label``, DataError."""
    from vflsim.learning.data.labels import survey, table_at
    from vflsim.scenario.proposal import proposed
    from vflsim.streams import few

    columns = table_at(table, () if label is None else (label,))
    if label is None:
        what, remedy = "--label is not said: the column to predict", f"vflsim new --from {table} --label COLUMN"
        raise ScenarioError(what, str(table), few([repr(each) for each in columns.names]), remedy)
    path = table if table.is_absolute() else os.path.relpath(table, file.parent)
    return proposed(survey(columns, label), name, str(path), str(file))
