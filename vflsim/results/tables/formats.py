"""Tables in the formats of papers, pages and spreadsheets: LaTeX, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Literal, TypeAlias

from vflsim.results.tables.cells import amount_of, common_unit, in_unit
from vflsim.results.tables.latex import latex
from vflsim.text_table import TextTable, markdown_table

FormatName: TypeAlias = Literal["latex", "markdown", "csv", "html"]


_WORDS = re.compile(r", [a-z ]+$")
"""What a cell says behind its amount."""


def written(tables: Sequence[TextTable], form: FormatName) -> str:
    """Write tables in a format, ending in a line end."""
    return FORMATS[form](tables)


def _markdown(tables: Sequence[TextTable]) -> str:
    lines: list[str] = []
    for table in tables:
        lines += ["", *([f"## {table.title}", ""] if table.title else []), *markdown_table(table.header, table.rows)]
        lines += ["", *(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n".join(lines[1:]) + "\n"


def _html(tables: Sequence[TextTable]) -> str:
    return "\n".join(table._repr_html_() for table in tables) + "\n"


def _csv(tables: Sequence[TextTable]) -> str:
    """Write each table with its title, header and rows, and an empty line between tables.

    Behind a column with amounts follow their numbers: the amount, and the ends of its interval or its bound.
    """
    buffer = StringIO()
    out = csv.writer(buffer, lineterminator="\n")
    for number, table in enumerate(tables):
        if number:
            out.writerow([])
        if len(tables) > 1:
            out.writerow([table.title])
        columns = [column for place, name in enumerate(table.header) for column in _columns(table, place, name)]
        out.writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _columns(table: TextTable, place: int, name: str) -> list[list[str]]:
    """Return a column as shown, with its head, and behind it its numbers if it has amounts."""
    cells = [row[place] for row in table.rows]
    amounts = [None if place in table.left else amount_of(_WORDS.sub("", cell)) for cell in cells]
    known = [amount for amount in amounts if amount is not None]
    unit = common_unit(known) if known else None
    if unit is None or all(cell.isdecimal() for cell in cells):
        return [[name, *cells]]
    shown = f" [{unit}]" if unit and unit != "×" else ""
    numbers = [[f"{name}: {what}{shown}"] for what in ("value", "low", "high")]
    for amount in amounts:
        values = (None, None, None) if amount is None else (amount.value, *amount.ends())
        for column, value in zip(numbers, values, strict=True):
            given = "" if value is None or amount is None else f"{in_unit(value, amount.unit, unit).normalize():f}"
            column.append(given)
    return [[name, *cells], *numbers]


FORMATS: Mapping[FormatName, Callable[[Sequence[TextTable]], str]] = {
    "latex": latex,
    "markdown": _markdown,
    "csv": _csv,
    "html": _html,
}
