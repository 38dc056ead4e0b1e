"""A scenario as HTML, for notebooks: what it compares, and its text."""

from collections.abc import Mapping
from html import escape
from typing import Any

from vflsim.scenario.emit import dump, flow
from vflsim.tables import DataTable


def html(raw: Mapping[str, Any], clients: int, seeds: tuple[int, ...]) -> str:
    """Write a scenario as written: its protocols as a table, and all of it as YAML to unfold."""
    rows = [
        (name, str(entry.get("kind", "")), flow({key: value for key, value in entry.items() if key != "kind"} or None))
        for name, entry in raw["protocols"].items()
    ]
    rows = [(name, kind, "—" if own == "null" else own) for name, kind, own in rows]
    number = f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    notes = [f"{clients} clients; {len(rows)} protocols × {number} = {len(rows) * len(seeds)} runs."]
    title = str(raw.get("name", "scenario"))
    table = DataTable(("protocol", "kind", "its own settings"), rows, title=title, notes=notes, left=(0, 1, 2))
    return f"{table._repr_html_()}<details><summary>YAML</summary><pre>{escape(dump(raw))}</pre></details>"
