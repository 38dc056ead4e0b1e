"""Text for terminals that never cuts a word: paragraphs, and tables that break into blocks of columns."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vflsim.errors import printable

if TYPE_CHECKING:
    import pandas as pd

_GAP = 2
_PLAIN = 120
"""Width in columns where there is no terminal."""


class SafeConsole(Console):
    """The console that everything is printed on: names, paths and messages from files cannot steer the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as Rich does, with control characters of texts written out."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


@final
class TextTable:
    """Rows of text under a header, with ``notes`` below.

    Columns that do not fit continue in a block below, which repeats the first column. Cells stay on one line; headers
    may break between words. Columns whose number is in ``left`` are left-aligned, the others right-aligned. It prints
    as in a terminal, and is an HTML table in a notebook.
    """

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        notes: Sequence[str] = (),
        left: Sequence[int] = (0,),
    ) -> None:
        self.header: Sequence[str] = _on_one_line(header)
        self.rows: Sequence[Sequence[str]] = [_on_one_line(row) for row in rows]
        self.title, self.left = printable(title), left
        self.notes: Sequence[str] = [printable(note) for note in notes]
        cells = [[cell_len(cell) for cell in column] for column in zip(*rows, strict=True)] or [[0] for _ in header]
        self._full, self._on_two_lines, self._narrow = (
            [max(_header_width(name, lines), *lengths) for name, lengths in zip(header, cells, strict=True)]
            for lines in (1, 2, len(max(header, key=len)))
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        blocks = self._blocks(options.max_width)
        for narrower in range(options.max_width, 0, -1) if len(blocks) > 1 else ():  # make blocks equally wide
            evened = self._blocks(narrower)
            if len(evened) > len(blocks):
                break
            blocks = evened
        for number, block in enumerate(blocks):
            if number:
                yield Text("")
            yield self._table(block, options.max_width)
        for note in self.notes:
            yield Text(note, style="dim")

    def __repr__(self) -> str:
        buffer = StringIO()
        width = shutil.get_terminal_size((_PLAIN, 0)).columns
        SafeConsole(file=buffer, width=width).print(self)
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<table><caption><b>{escape(self.title)}</b></caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table><p><small>{'<br>'.join(map(escape, self.notes))}</small></p>"
        )

    @property
    def frame(self) -> pd.DataFrame:
        """The cells, as texts; the first column is the index."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.header)).set_index(self.header[0])

    def _blocks(self, width: int) -> list[list[int]]:
        """Group the numbers of columns that fit beside each other."""
        blocks = [[0]]
        for column in range(1, len(self.header)):
            if len(blocks[-1]) > 1 and _width(self._narrow, [*blocks[-1], column]) > width:
                blocks.append([0])
            blocks[-1].append(column)
        return blocks

    def _table(self, block: list[int], width: int) -> Table:
        widths, spare = list(self._narrow), width - _width(self._narrow, block)
        for wider in (self._on_two_lines, self._full):
            for column in block:
                more = wider[column] - widths[column]
                if more <= spare:
                    widths[column], spare = wider[column], spare - more
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for column in block:
            justify = "left" if column in self.left else "right"
            table.add_column(Text(self.header[column]), justify=justify, width=widths[column])  # type: ignore[arg-type]
        for row in self.rows:
            table.add_row(*(Text(row[column]) for column in block))
        return table


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table: first column left-aligned, the others right-aligned."""
    cells = [[cell.replace("|", "\\|") for cell in _on_one_line(row)] for row in (header, *rows)]
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])]


def markdown_page(title: str, tables: Iterable[TextTable], left_out: Mapping[str, str]) -> str:
    """Return a page of tables, each with its notes, and the reasons for what was left out."""
    lines = [f"# {title}"]
    for table in tables:
        lines += ["", f"## {table.title}", "", *markdown_table(table.header, table.rows), ""]
        lines += [f"- {note}" for note in table.notes]
    if left_out:
        lines += ["", "## Left out", "", *(f"- {name}: {why}" for name, why in left_out.items())]
    return printable("\n".join(lines)) + "\n"


def say(console: Console, text: str) -> None:
    """Print text; wrap it between words in a terminal only."""
    text = printable(text)
    if console.is_terminal:
        width = max(20, console.width)
        lines = (
            textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
        text = "\n".join(lines)
    console.print(Text(text), soft_wrap=True)


def _on_one_line(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(printable(text, "") for text in texts)


def _width(widths: Sequence[int], block: Sequence[int]) -> int:
    return sum(widths[column] for column in block) + _GAP * (len(block) - 1)


def _header_width(name: str, lines: int) -> int:
    """Find the least width at which a header, broken between words, takes at most ``lines`` lines."""
    width = max(map(cell_len, name.split()), default=0)
    while len(textwrap.wrap(name, max(1, width), break_long_words=False, break_on_hyphens=False)) > lines:
        width += 1
    return width
