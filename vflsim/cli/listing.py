"""What scenarios can name: ``vflsim list``, ``schema`` and ``data``.

The texts of ``list`` are remembered between calls: to describe all kinds takes the import of PyTorch.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import platformdirs
import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vflsim.cli.app import Application, ScenarioFile, app, console, known, say
from vflsim.kinds import TABLES
from vflsim.shipped import scenario_file
from vflsim.version import __version__

PRESETS, PARTITIONS = "presets", "partitions"
Texts = tuple[str, ...]


def listed(category: str) -> list[Texts]:
    """Return the texts on every kind of a category of ``vflsim.kinds.TABLES``, partition or preset, in order.

    A kind has three: its name, its keys (``?`` behind those that may be left out) and a line of its description; so has
    a partition, which ``by`` names; a preset has four: its name, its title, its source, and what it adds to that.

    They are read from a file in the user's cache folder, named after the sizes and times of vflsim's own modules and
    presets: a changed module has another file. What cannot be read there is described anew; a folder that cannot be
    written costs time only.

    Example: ``listed("networks")[0][0]`` is ``"fifo"``.
    """
    place = _place(category)
    with suppress(OSError, ValueError):
        entries = [tuple(line.split("\t")) for line in place.read_text("utf-8").splitlines()]
        if {len(texts) for texts in entries} == {4 if category == PRESETS else 3}:
            return entries
    other = {PRESETS: _presets, PARTITIONS: _partitions}
    entries = list(other[category]() if category in other else _kinds(category))
    with suppress(OSError):
        _write(place, "".join("\t".join(texts) + "\n" for texts in entries))
    return entries


def _kinds(category: str) -> Iterator[Texts]:
    for entry in TABLES[category]:
        fields = [(key, field) for key, field in entry.model_fields.items() if key != "kind"]
        ordered = sorted(fields, key=lambda pair: not pair[1].is_required())
        keys = ", ".join(key if field.is_required() else f"{key}?" for key, field in ordered)
        line = (entry.__doc__ or "").strip().splitlines()[0].replace("``", "")
        yield str(entry.model_fields["kind"].default), keys, line


def _presets() -> Iterator[Texts]:
    from vflsim.scenario.overrides import Preset, preset_names

    for preset in map(Preset.read, preset_names()):
        yield preset.name, preset.title, preset.source, preset.ours


def _partitions() -> Iterator[Texts]:
    from vflsim.learning.data.partition import WAYS

    return ((way, keys, line) for way, (keys, line) in WAYS.items())


def _place(category: str) -> Path:
    return Path(platformdirs.user_cache_dir("vflsim")) / "listed" / f"{category}-{_digest()}.tsv"


@cache
def _digest() -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{root} {__version__}".encode())
    for path, size, changed in sorted(_files(root)):
        digest.update(f"\n{path} {size} {changed}".encode())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(Path(entry.path))
            elif entry.name.endswith((".py", ".yaml")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _write(place: Path, text: str) -> None:
    """Put the file there whole, and remove those of the same category that other modules have written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=place.parent, suffix=".part", delete=False) as file:
        file.write(text)
    os.replace(file.name, place)
    category = place.name.rpartition("-")[0]
    for older in place.parent.glob(f"{category}-????????????????.tsv"):
        if older != place:
            older.unlink(missing_ok=True)


@app.command("list")
def list_kinds(
    what: Annotated[str | None, typer.Argument(help="delays, protocols, presets, …; everything if left out.")] = None,
) -> None:
    """List what a scenario can contain: protocols, models, delays, networks and so on."""
    from vflsim.kinds import TABLES

    tables = [*TABLES, PARTITIONS]
    if what is not None:
        known(what, [*tables, PRESETS], "list", "vflsim list")
    page = console()
    if what == PRESETS:
        _list_presets()
        return
    for name in tables if what is None else [what]:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(max_width=32)
        table.add_column()
        for kind, keys, line in listed(name):
            table.add_row(Text.assemble((kind, "cyan"), f"{{{keys}}}" if keys else ""), Text(line))
        page.print(Text(f"{name} (partition: {{by: NAME, …}})" if name == PARTITIONS else name, style="bold"))
        page.print(Padding(table, (0, 0, 0, 2)))
    page.print(Text("A key with ? may be left out.", style="dim"))
    if what is None:
        _list_presets()


def _list_presets() -> None:
    """Print the presets of timing: what each sets, its source, and which numbers the source does not give."""

    page = console()
    page.print(Text(f"{PRESETS} (timing: {{preset: NAME}})", style="bold"))
    for name, title, source, ours in listed(PRESETS):
        page.print(Padding(Text(name, style="cyan"), (0, 0, 0, 2)))
        for line in (title, f"source: {source}", f"ours: {ours}"):
            page.print(Padding(Text(line), (0, 0, 0, 4)))


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from vflsim.scenario.load import schema as json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


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
    from vflsim.learning.data.user import stand_in
    from vflsim.results.store.write import write_file
    from vflsim.scenario import load

    source, place = scenario_file(scenario).parent, folder / file
    written = stand_in(load(scenario).data, file, source)
    if place.absolute() == (source / file).absolute():
        raise DataError("the stand-in would replace the file itself", str(place), "another folder", "say another --out")
    say(str(write_file(place, written)))
