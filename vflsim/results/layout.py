"""Text for terminals that never cuts a word: paragraphs, and tables whose columns go below where they do not fit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2


@final
class TextTable:
    """Rows of text under a header; ``notes`` stand below.

    Columns that do not fit beside each other go below, the first one repeated. Cells stay on one line, headers may
    break between words. Columns whose number is in ``left`` are aligned to the left, the others to the right.
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
        self.header, self.rows, self.title, self.notes, self.left = header, rows, title, notes, left
        cells = [[cell_len(cell) for cell in column] for column in zip(*rows, strict=True)] or [[0] for _ in header]
        self._full = [max(cell_len(name), *lengths) for name, lengths in zip(header, cells, strict=True)]
        longest = [max(map(cell_len, name.split()), default=0) for name in header]
        self._narrow = [max(word, *lengths) for word, lengths in zip(longest, cells, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        width = options.max_width
        blocks = self._blocks(width)
        while len(evened := self._blocks(width - 1)) == len(blocks) > 1:
            blocks, width = evened, width - 1
        for number, block in enumerate(blocks):
            if number:
                yield Text("")
            yield self._table(block, options.max_width)
        for note in self.notes:
            yield Text(note, style="dim")

    def _blocks(self, width: int) -> list[list[int]]:
        """Numbers of the columns that stand beside each other."""
        blocks = [[0]]
        for column in range(1, len(self.header)):
            if len(blocks[-1]) > 1 and _width(self._narrow, [*blocks[-1], column]) > width:
                blocks.append([0])
            blocks[-1].append(column)
        return blocks

    def _table(self, block: list[int], width: int) -> Table:
        widths = self._full if _width(self._full, block) <= width else self._narrow
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for column in block:
            justify = "left" if column in self.left else "right"
            table.add_column(Text(self.header[column]), justify=justify, width=widths[column])  # type: ignore[arg-type]
        for row in self.rows:
            table.add_row(*(Text(row[column]) for column in block))
        return table


def say(console: Console, text: str) -> None:
    """Print text that wraps between words in a terminal, and not at all elsewhere."""
    if console.is_terminal:
        width = max(20, console.width)
        lines = (
            textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
        text = "\n".join(lines)
    console.print(Text(text), soft_wrap=True)


def _width(widths: Sequence[int], block: Sequence[int]) -> int:
    return sum(widths[column] for column in block) + _GAP * (len(block) - 1)
