"""``vflsim data``: list and download data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from vflsim.cli.app import Application, ScenarioFile, app, console, say
from vflsim.shipped import scenario_file

data_app = Application(help="Data sets that scenarios can name.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.command("list")
def data_list_command() -> None:
    """List the data sets that a scenario can name, and where each was found."""
    from vflsim.learning.data.files import data_list, folders
    from vflsim.tables import DataTable

    rows, page = data_list(), console()
    header = ("name", "rows", "features", "classes", "task", "licence", "where")
    cells = [(row.name, row.rows, row.features, row.classes, row.task, row.licence, row.where) for row in rows]
    page.print(DataTable(header, cells, left=(0, 4, 5, 6)))
    page.print()
    sources = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        sources.add_row(Text(row.name), Text(row.source))
    page.print(sources)
    if any(row.where == "absent" for row in rows):
        searched = ", ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders())
        page.print()
        say(f"absent: not in {searched}; fetch it with vflsim data get NAME, or set VFLSIM_DATA to its folder")


@data_app.command("get")
def data_get_command(
    name: str, folder: Annotated[Path | None, typer.Option("--to", help="Folder (default: the cache).")] = None
) -> None:
    """Download a data set's original files and check their checksums."""
    from vflsim.learning.data.files import data_get

    paths = data_get(name, folder, progress=sys.stdout.isatty())
    for path in paths:
        say(str(path))
    if not paths:
        say(f"{name} comes with scikit-learn: there is nothing to download")


@data_app.command("stand-in")
def data_stand_in_command(
    scenario: ScenarioFile,
    file: Annotated[str, typer.Argument(help="The file, as the scenario names it.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the stand-in.")],
) -> None:
    """Write what other parties need of a party's file: its ids and columns, without features.

    In a live run, the server and the other clients read it in the file's place.
    """
    from vflsim.errors import DataError
    from vflsim.learning.data.stand_ins import stand_in
    from vflsim.results.store.write import write_file
    from vflsim.scenario import load

    source, place = scenario_file(scenario).parent, folder / file
    written = stand_in(load(scenario).data, file, source)
    if place.absolute() == (source / file).absolute():
        raise DataError("the stand-in would replace the file itself", str(place), "another folder", "say another --out")
    say(str(write_file(place, written)))
