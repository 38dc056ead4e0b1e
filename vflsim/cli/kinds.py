"""``vflsim list`` and ``vflsim schema``: what a scenario can contain."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vflsim.cli.app import app, console, known


@app.command("list")
def list_kinds(
    what: Annotated[str | None, typer.Argument(help="delays, protocols, presets, …; everything if left out.")] = None,
) -> None:
    """List what a scenario can contain: protocols, models, delays, networks and so on."""
    from vflsim.cli.listing import PARTITIONS, PRESETS, listed
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
    from vflsim.cli.listing import PRESETS, listed

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
