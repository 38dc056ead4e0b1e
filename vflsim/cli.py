"""The command line: a thin layer over the Python API. Heavy imports wait until a command needs them."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vflsim.errors import ResultsError, ScenarioError, VflsimError

app = typer.Typer(
    name="vflsim",
    help="Compare vertical-federated-learning protocols under identical timing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets that scenarios can name.", no_args_is_help=True)
app.add_typer(data_app, name="data")
out = Console(width=None if sys.stdout.isatty() else 120)
INTERRUPTED = 130

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario file (YAML).", metavar="SCENARIO")]
ResultsFolder = Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: training.batch=32", metavar="KEY=VALUE")
]
Seeds = Annotated[str | None, typer.Option(help="Seeds to run instead of the scenario's: 0:5 or [1, 7].")]


def _load(scenario: Path, overrides: list[str] | None, seeds: str | None = None) -> Any:
    from vflsim.scenario.load import load

    return load(scenario, [*(overrides or []), *([f"seeds={seeds}"] if seeds is not None else [])])


@app.command()
def run(
    scenario: ScenarioFile,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where results go (default: results/NAME).")] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate the timing without training.")] = False,
) -> None:
    """Run every protocol of a scenario with every seed, and compare them."""
    loaded = _load(scenario, overrides, seeds)
    from vflsim.runner.study import run_study
    from vflsim.terminal import Display, show_comparison

    folder = out_folder or Path("results") / loaded.name
    with Display(out, loaded) as display:
        study = run_study(loaded, folder, timing_only=timing_only, watcher=display)
    show_comparison(out, study, folder)
    for (protocol, seed), error in study.failures.items():
        _complain(error, f"{protocol}, seed {seed}: ")
    if study.failures:
        raise typer.Exit(1)


@app.command()
def check(scenario: ScenarioFile, overrides: Overrides = None, seeds: Seeds = None) -> None:
    """Say whether a scenario is valid, what it would run, and how big that is."""
    loaded = _load(scenario, overrides, seeds)
    from vflsim.results.report import quantity
    from vflsim.runner.build import Data
    from vflsim.runner.expected import TRIAL_STEPS, expectation

    data = Data(loaded)
    table = Table(title=f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds", pad_edge=False)
    for column in (
        "protocol",
        "kind",
        "clients",
        "batches / epoch",
        "a step takes",
        "an upload",
        "parameters",
        "memory",
    ):
        table.add_column(column, justify="left" if column in ("protocol", "kind") else "right")
    for name in loaded.protocols:
        found = expectation(loaded, name, data.of(loaded.training_of(name)))
        table.add_row(
            name,
            found.kind,
            str(found.clients),
            f"{found.batches_per_epoch:,}",
            quantity(found.step_s, "s"),
            quantity(found.upload_bytes, "B"),
            f"{found.parameters:,}",
            quantity(found.memory_bytes, "B"),
        )
    table.caption = f"a step: mean of up to {TRIAL_STEPS} simulated without training, seed {loaded.seeds[0]}"
    out.print(f"[green]valid[/]: {scenario}", highlight=False)
    out.print(table)
    out.print(f"data: {data.of(loaded.training).summary()}", highlight=False, soft_wrap=True)


@app.command()
def plot(
    results: ResultsFolder,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this figure (may be repeated).")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where figures go (default: the folder).")] = None,
) -> None:
    """Draw the figures of a results folder."""
    from vflsim.plotting import draw, save_all
    from vflsim.results.read import Results
    from vflsim.results.write import write_file

    opened = Results.open(results)
    if kind:
        paths = [write_file((out_folder or results) / f"{name}.png", draw(name, opened).png()) for name in kind]
    else:
        paths = save_all(opened, out_folder)
    for path in paths:
        out.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def compare(results: Annotated[list[Path], typer.Argument(help="Results folders.", metavar="RESULTS...")]) -> None:
    """Print the comparison of one or several results folders."""
    from vflsim.results.read import Results
    from vflsim.results.report import comparison_table

    for folder in results:
        out.print(comparison_table(Results.open(folder)))


@app.command()
def verify(results: ResultsFolder) -> None:
    """Check the invariants of finished runs: one computation at a time, bytes that add up, staleness in bounds, …."""
    from vflsim.results.read import Results
    from vflsim.results.verify import verify_folder

    problems = verify_folder(results)
    for problem in problems:
        out.print(problem, highlight=False, soft_wrap=True)
    if problems:
        raise ResultsError(f"{len(problems)} broken invariants", str(results), remedy="run the scenario again")
    out.print(f"[green]sound[/]: {len(Results.open(results).runs)} runs in {results}", highlight=False)


@app.command("list")
def list_kinds(
    what: Annotated[str | None, typer.Argument(help="delays, protocols, …; everything if left out.")] = None,
) -> None:
    """List what a scenario can say: delays, compute models, networks, activations, protocols, models, …."""
    from vflsim.scenario.tables import TABLES

    if what is not None and what not in TABLES:
        raise ScenarioError(f"there is no list of {what!r}", "vflsim list", ", ".join(TABLES))
    for name, classes in TABLES.items():
        if what in (None, name):
            out.print(f"[bold]{name}[/]")
            for entry in classes:
                fields = ", ".join(key for key in entry.model_fields if key != "kind")
                kind = entry.model_fields["kind"].default
                text = (entry.__doc__ or "").strip().splitlines()[0]
                out.print(
                    f"  [cyan]{kind}[/]{{{fields}}}  {text}" if fields else f"  [cyan]{kind}[/]  {text}",
                    highlight=False,
                )


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from vflsim.scenario.load import schema as json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


@data_app.command("list")
def data_list_command() -> None:
    """List the data sets that a scenario can name, and where each was found."""
    from vflsim.learning.data.download import data_list

    rows = [dataclasses.asdict(row) for row in data_list()]
    table = Table(*rows[0], pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row.values()))
    out.print(table)


@data_app.command("get")
def data_get_command(
    name: str, folder: Annotated[Path | None, typer.Option("--to", help="Folder (default: the cache).")] = None
) -> None:
    """Download a data set's original files and check their checksums."""
    from vflsim.learning.data.download import data_get

    for path in data_get(name, folder, progress=True):
        out.print(str(path), highlight=False, soft_wrap=True)


def _complain(error: VflsimError, prefix: str = "") -> None:
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"error: {prefix}{error}")


def main() -> None:
    """The console script: errors of ours are one message, and the exit status says whose fault it was."""
    try:
        app()
    except VflsimError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the runs that had ended are kept")
        sys.exit(INTERRUPTED)
