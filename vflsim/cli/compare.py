"""``vflsim compare``: tables of one or several results folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflsim.cli.app import app, console, must_be_folder


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
