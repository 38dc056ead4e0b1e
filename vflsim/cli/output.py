"""Shared by commands that show results: trust in them, the choice of runs, formats of tables, files of pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import ConsoleRenderable

from vflsim.cli.app import console, known, say
from vflsim.errors import ScenarioError
from vflsim.party_names import name_from_now_on

if TYPE_CHECKING:
    from rich.console import Console

    from vflsim.plotting.style import Picture
    from vflsim.results.read import Results
    from vflsim.tables import DataTable
    from vflsim.tables.formats import FormatName

Trust = Annotated[
    bool, typer.Option("--trust", help="Import the modules that the results name, which runs their code.")
]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Only this seed (may be repeated).")]


def opened(
    folder: Path, protocols: Iterable[str] | None, seeds: Iterable[int] | None, command: str, trust: bool
) -> Results:
    """Open results. Raises ScenarioError for a protocol or a seed that they do not have."""
    from vflsim.results.read import Results

    results = Results.open(folder, trust)
    name_from_now_on(results.scenario)
    for each in protocols or ():
        known(each, results.protocols, "protocol", f"vflsim {command} --protocol")
    for number in seeds or ():
        known(str(number), results.seeds, "seed", f"vflsim {command} --seed")
    return results


def beside(results: Path, out: Path | None, what: str) -> Path:
    """Return ``out``, or the folder ``RESULTS-<what>`` beside the results."""
    whole = results.resolve()
    return out or (results if results.name == whole.name else whole).with_name(f"{whole.name}-{what}")


def written_and_shown(
    folder: Path,
    save: Callable[[Path], list[Path]],
    figures: Iterable[tuple[str, Picture]],
    tables: Iterable[ConsoleRenderable],
    left_out: Mapping[str, str],
) -> None:
    """Write tables and figures, then print the tables, what was left out, and the files.

    A reader that closes the pipe early costs no file.
    """
    from vflsim.results.store.write import write_file

    paths = save(folder)
    paths += [write_file(folder / f"{name}.png", figure.png()) for name, figure in figures]
    page = console()
    for table in tables:
        page.print(table)
        page.print()
    for name, why in left_out.items():
        say(f"left out: {name}: {why}")
    for path in paths:
        say(str(path))


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
