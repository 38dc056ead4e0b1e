"""Commands that read a results folder: plot, compare, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import ResultsFolder, app, console, known, say
from vflsim.errors import ResultsError


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
        known(name, PLOTS, "figure", "vflsim plot --kind")
    opened = Results.open(results)
    if kind:
        figures = [(name, draw(name, opened).png()) for name in kind]
        paths = [write_file((out_folder or results) / f"{name}.png", picture) for name, picture in figures]
    else:
        paths = save_all(opened, out_folder)
    for path in paths:
        say(str(path))


@app.command()
def compare(results: Annotated[list[Path], typer.Argument(help="Results folders.", metavar="RESULTS...")]) -> None:
    """Print the comparison of one or several results folders."""
    from vflsim.results.read import Results
    from vflsim.results.report import comparison_table

    tables = [(folder, comparison_table(Results.open(folder))) for folder in results]
    page = console()
    for number, (folder, table) in enumerate(tables):
        if len(tables) > 1:
            table.title = f"{table.title} ({folder})"
        if number:
            page.print()
        page.print(table)


@app.command()
def verify(results: ResultsFolder) -> None:
    """Check the invariants of finished runs: one computation at a time, bytes that add up, staleness in bounds, …."""
    from vflsim.results.read import Results
    from vflsim.results.verify import verify_folder

    problems = verify_folder(results)
    for problem in problems:
        say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}, listed above"
        raise ResultsError(count, str(results), "finished runs that keep every invariant", "run the scenario again")
    say(f"{len(Results.open(results).runs)} runs in {results} are sound")
