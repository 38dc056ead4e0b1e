"""``vflsim compare``: tables of one or several results folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflsim.cli.app import app, complain, console, must_be_folder, say
from vflsim.cli.output import Csv, Html, Latex, Markdown, Metric, form_of, show
from vflsim.errors import ResultsError

if TYPE_CHECKING:
    from vflsim.results.read import Results
    from vflsim.tables import DataTable


@app.command()
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(help="Results folders (of runs or sweeps).", metavar="RESULTS...", callback=must_be_folder),
    ],
    quantiles: Annotated[
        bool, typer.Option("--quantiles", help="Quantiles of round durations with 95 % intervals instead.")
    ] = False,
    metric: Metric = None,
    target: Annotated[
        str | None,
        typer.Option(help="Target instead of the scenario's: test_accuracy=0.85, or {test_accuracy: 0.85, for: 20 s}."),
    ] = None,
    pairing: Annotated[
        bool, typer.Option("--pairing", help="Add paired differences, and how much narrower pairing makes them.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="The protocol that the others are compared with (default: the first that waits for all)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the table and the figures of the results.")
    ] = None,
    latex: Latex = False,
    markdown: Markdown = False,
    csv: Csv = False,
    html: Html = False,
) -> None:
    """Print the comparison of results; those of several studies are in one table."""
    from vflsim.results.joined import opened, table_of, tables_of
    from vflsim.results.statistics.targets import target_from_text

    form = form_of("compare", latex, markdown, csv, html)
    targets = None if target is None else target_from_text(target)
    found, sweeps = opened(results, baseline, targets)
    if metric is not None and found is not None:
        remedy = f"its table shows the final metric; for others: vflsim plot {found.folder} --metric {metric}"
        raise ResultsError("is no sweep, of which --metric shows one", str(found.folder), "folders of sweeps", remedy)
    tables = [] if found is None else [table_of(found, quantiles, pairing=pairing)]
    for folder in sweeps:
        for table in tables_of(folder, quantiles, targets, metric=metric):
            table.title += f" ({folder})" if len(results) > 1 else ""
            tables.append(table)
    paths = [] if out is None else _written(out, found, tables[0])
    show(console(), tables, form)
    for path in paths:
        (say if form is None else complain)(str(path))


def _written(folder: Path, results: Results | None, table: DataTable) -> list[Path]:
    """Write the comparison as Markdown, and every figure that the results have data for. Raises ResultsError."""
    from vflsim.plotting import save_all
    from vflsim.plotting.style import FORMATS
    from vflsim.results.store.write import SCENARIO, SWEEP, write_file
    from vflsim.tables.formats import markdown

    if results is None:
        raise ResultsError("there are only sweeps, and a sweep has figures of its own", "--out", remedy="vflsim plot")
    if any((folder / name).is_file() for name in (SCENARIO, SWEEP)):
        raise ResultsError("holds results", f"--out {folder}", "a folder without results")
    if folder.suffix.lower() in FORMATS:
        raise ResultsError("is the name of one picture", f"--out {folder}", "a folder", str(folder.with_suffix("")))
    return [write_file(folder / "comparison.md", markdown([table], table.title)), *save_all(results, folder)]
