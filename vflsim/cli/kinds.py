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

PRESETS = "presets"


@app.command("list")
def list_kinds(
    what: Annotated[str | None, typer.Argument(help="delays, protocols, presets, …; everything if left out.")] = None,
) -> None:
    """List what a scenario can contain: protocols, models, delays, networks and so on."""
    from vflsim.kinds import TABLES

    if what is not None:
        known(what, [*TABLES, PRESETS], "list", "vflsim list")
    page = console()
    if what == PRESETS:
        _list_presets()
        return
    for name in TABLES if what is None else [what]:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(max_width=32)
        table.add_column()
        for entry in TABLES[name]:
            fields = [(key, field) for key, field in entry.model_fields.items() if key != "kind"]
            ordered = sorted(fields, key=lambda pair: not pair[1].is_required())
            keys = ", ".join(key if field.is_required() else f"{key}?" for key, field in ordered)
            kind = str(entry.model_fields["kind"].default)
            form = Text.assemble((kind, "cyan"), f"{{{keys}}}" if keys else "")
            table.add_row(form, Text((entry.__doc__ or "").strip().splitlines()[0].replace("``", "")))
        page.print(Text(name, style="bold"))
        page.print(Padding(table, (0, 0, 0, 2)))
    page.print(Text("A key with ? may be left out.", style="dim"))
    if what is None:
        _list_presets()


def _list_presets() -> None:
    """Print the presets of timing: what each sets, its source, and which numbers the source does not give."""
    from vflsim.scenario.presets import Preset, names

    page = console()
    page.print(Text(f"{PRESETS} (timing: {{preset: NAME}})", style="bold"))
    for preset in map(Preset.read, names()):
        page.print(Padding(Text(preset.name, style="cyan"), (0, 0, 0, 2)))
        for line in (preset.title, f"source: {preset.source}", f"ours: {preset.ours}"):
            page.print(Padding(Text(line), (0, 0, 0, 4)))


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from vflsim.scenario.load import schema as json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
