"""The formats of tables on the command line: ``--latex``, ``--markdown``, ``--csv`` and ``--html``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from vflsim.errors import ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

    from vflsim.results.tables.formats import FormatName
    from vflsim.text_table import TextTable

Latex = Annotated[
    bool, typer.Option("--latex", help="Print the tables for LaTeX, with booktabs and siunitx, and nothing else.")
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown, and nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the tables as CSV, cells and their numbers, and nothing else.")]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Show this at every point of a sweep: a metric (test_loss), a measure (rounds, bytes, one of your own), "
        "or a percentile of the rounds (p99)."
    ),
]
Html = Annotated[bool, typer.Option("--html", help="Print the tables as HTML, and nothing else.")]


def form_of(command: str, latex: bool, markdown: bool, csv: bool, html: bool) -> FormatName | None:
    """Return the format that was asked for, if any. Raises ScenarioError for several."""
    wanted: dict[FormatName, bool] = {"latex": latex, "markdown": markdown, "csv": csv, "html": html}
    names = [name for name, given in wanted.items() if given]
    if len(names) > 1:
        said = " ".join(f"--{name}" for name in names)
        raise ScenarioError("several formats at once", f"vflsim {command} {said}", "one of them")
    return names[0] if names else None


def show(page: Console, tables: Sequence[TextTable], form: FormatName | None) -> None:
    """Print tables for people, or in a format, as it is and without colours, to the standard output."""
    if form is not None:
        from vflsim.results.tables.formats import written

        sys.stdout.write(written(tables, form))
        return
    for number, table in enumerate(tables):
        if number:
            page.print()
        page.print(table)
