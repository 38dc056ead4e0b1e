"""Commands that read a results folder: trace, compare, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import ResultsFolder, app, console, must_be_folder, say
from vflsim.errors import ResultsError


@app.command()
def trace(
    results: ResultsFolder,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol's runs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Only this seed's runs.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The file (default: RESULTS/trace.json); .gz compresses it.")
    ] = None,
) -> None:
    """Write runs as a trace for ui.perfetto.dev or chrome://tracing, with messages as arrows."""
    from vflsim.results.read import Results
    from vflsim.results.trace import write_trace

    say(str(write_trace(Results.open(results), out_file, protocol, seed)))


@app.command()
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(help="Results folders (of runs or sweeps).", metavar="RESULTS...", callback=must_be_folder),
    ],
    quantiles: Annotated[
        bool, typer.Option("--quantiles", help="Quantiles of round durations with 95 % intervals instead.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(help="Target instead of the scenario's: test_accuracy=0.85, or {test_accuracy: 0.85, for: 20 s}."),
    ] = None,
    pairing: Annotated[
        bool, typer.Option("--pairing", help="Add paired differences, and how much narrower pairing makes them.")
    ] = False,
) -> None:
    """Print the comparison of one or several results folders."""
    from vflsim.results.folder_tables import tables_of
    from vflsim.results.targets import target_from_text

    targets = None if target is None else target_from_text(target)
    tables = [(folder, table) for folder in results for table in tables_of(folder, quantiles, targets, pairing)]
    page = console()
    for number, (folder, table) in enumerate(tables):
        if len(results) > 1:
            table.title = f"{table.title} ({folder})"
        if number:
            page.print()
        page.print(table)


@app.command()
def verify(results: ResultsFolder) -> None:
    """Check that results are as they were written, and keep the rules: bytes add up, rounds have no gaps."""
    from vflsim.results.verify import runs_in, verify_folder

    problems = verify_folder(results)
    for problem in problems:
        say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        raise ResultsError(count, str(results), "complete, unchanged results", "run it again with --resume")
    say(f"{runs_in(results)} runs in {results} are sound")
