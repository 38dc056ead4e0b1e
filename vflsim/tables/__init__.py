"""Tables of numbers and words, and their forms: for terminals, Markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, TypeAlias, final

from vflsim.errors import printable
from vflsim.party_names import are_named, titled
from vflsim.vocabulary.amounts import Amount

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderResult

Cell: TypeAlias = str | int | Amount
"""Words, a count, or an amount."""


@final
@dataclass
class DataTable:
    """Rows of ``cells`` under a ``header``, with ``notes`` below; columns whose number is in ``left`` hold words.

    With ``importance``, the numbers of all columns, the most important first, a narrow terminal shows those that it has
    room for, and a note says which are left out, and ``elsewhere`` where all of them are.

    It prints as in a terminal, and is an HTML table in a notebook. It keeps the parties' names of the scenario in which
    it was made, wherever it is printed.
    """

    header: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()
    left: Sequence[int] = (0,)
    importance: Sequence[int] = ()
    elsewhere: str = "a wider terminal and a pipe (`| less`) show all"

    def __post_init__(self) -> None:
        if not are_named():
            return
        self.header, self.title = [*map(titled, self.header)], titled(self.title)
        self.notes = [*map(titled, self.notes)]
        self.cells = [[titled(cell) if isinstance(cell, str) else cell for cell in row] for row in self.cells]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells as people read them, each on one line."""
        return [tuple(shown(cell) for cell in row) for row in self.cells]

    @property
    def heads(self) -> tuple[str, ...]:
        """The header, each on one line."""
        return tuple(map(shown, self.header))

    @property
    def frame(self) -> pd.DataFrame:
        """The cells, as texts; the first column is the index."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(self.heads)).set_index(self.heads[0])

    def limited(self, most: int, elsewhere: str) -> DataTable:
        """Keep the first rows alone, and say where all of them are, if there are more than ``most``."""
        if len(self.cells) <= most:
            return self
        note = f"The first {most:,} of {len(self.cells):,} rows: {elsewhere} has all of them."
        return replace(self, cells=self.cells[:most], notes=(*self.notes, note))

    def sortable(self) -> list[list[tuple[str, float | None]]]:
        """Return the rows' cells, each with the number to sort by (None: sorted as text)."""
        return [
            [(text, None if place in self.left else _key(cell)) for place, (text, cell) in enumerate(pairs)]
            for pairs in (zip(*each, strict=True) for each in zip(self.rows, self.cells, strict=True))
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from vflsim.tables.terminal import blocks, fitting

        heads, rows, width = self.heads, self.rows, options.max_width
        chosen, rest = [*range(len(heads))], list[int]()
        if self.importance and console.is_terminal:
            chosen, rest = fitting(heads, rows, self.importance, width)
        if self.title:
            yield Text(printable(self.title), style="bold")
        kept = [[row[place] for place in chosen] for row in rows]
        left = [number for number, place in enumerate(chosen) if place in self.left]
        yield from blocks([heads[place] for place in chosen], kept, left, width)
        if rest:
            names = ", ".join(heads[place] for place in rest)
            yield Text(printable(f"Left out of {width} columns: {names}; {self.elsewhere}."), style="dim")
        yield from (Text(printable(note), style="dim") for note in self.notes)

    def __repr__(self) -> str:
        from vflsim.tables.terminal import printed

        return printed(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.heads)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        title, notes = escape(printable(self.title)), "<br>".join(escape(printable(note)) for note in self.notes)
        return (
            f"<table><caption><b>{title}</b></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p><small>{notes}</small></p>"
        )


def shown(cell: Cell) -> str:
    """Write a cell on one line."""
    return printable(f"{cell:,}" if isinstance(cell, int) else str(cell), "")


def _key(cell: Cell) -> float | None:
    key = cell.key if isinstance(cell, Amount) else cell
    return None if isinstance(key, str) or key != key else float(key)


__all__ = ["Cell", "DataTable"]
