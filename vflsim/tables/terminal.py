"""Text for terminals that never cuts a word: paragraphs, and tables that break into blocks of columns."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vflsim.errors import printable
from vflsim.party_names import titled

_GAP = 2
_PLAIN = 120
"""Width in columns where there is no terminal."""


class SafeConsole(Console):
    """The console that everything is printed on: names, paths and messages from files cannot steer the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as Rich does, with the parties' names, and control characters of texts written out."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(titled(text)), style, control)


def say(console: Console, text: str) -> None:
    """Print text; wrap it between words in a terminal only."""
    text = printable(titled(text))
    if console.is_terminal:
        width = max(20, console.width)
        lines = (
            textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
        text = "\n".join(lines)
    console.print(Text(text), soft_wrap=True)


def printed(shown: RenderableType) -> str:
    """Return what a terminal shows."""
    buffer = StringIO()
    width = shutil.get_terminal_size((_PLAIN, 0)).columns
    SafeConsole(file=buffer, width=width).print(shown)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def blocks(
    heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], width: int
) -> Iterator[RenderableType]:
    """Yield a table of texts as what Rich prints in ``width`` columns; ``left`` are the numbers of columns of words.

    Columns that do not fit continue in a block below, which repeats the first column. Cells stay on one line; headers
    may break between words.
    """
    columns = [_Widths(name, column) for name, *column in zip(heads, *rows, strict=True)]
    least = [column.least for column in columns]
    grouped = _grouped(least, width)
    for narrower in range(width, 0, -1) if len(grouped) > 1 else ():  # make blocks equally wide
        evened = _grouped(least, narrower)
        if len(evened) > len(grouped):
            break
        grouped = evened
    for number, block in enumerate(grouped):
        if number:
            yield Text("")
        widths, spare = {place: least[place] for place in block}, width - _width([least[place] for place in block])
        for wider in ("on_two_lines", "full"):
            for place in block:
                more = getattr(columns[place], wider) - widths[place]
                if more <= spare:
                    widths[place], spare = widths[place] + more, spare - more
        shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for place in block:
            justify: Literal["left", "right"] = "left" if place in left else "right"
            shown.add_column(Text(heads[place]), justify=justify, width=widths[place])
        for row in rows:
            shown.add_row(*(Text(row[place]) for place in block))
        yield shown


def fitting(
    heads: Sequence[str], rows: Sequence[Sequence[str]], importance: Sequence[int], width: int
) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that ``width`` columns of a terminal have room for, and of the others.

    ``importance`` has the numbers of columns, the most important first; the first is always there.
    """
    least = [_Widths(name, column).least for name, *column in zip(heads, *rows, strict=True)]
    chosen: list[int] = []
    for place in importance:
        if not chosen or _width([least[each] for each in (*chosen, place)]) <= width:
            chosen.append(place)
    return sorted(chosen), [place for place in range(len(heads)) if place not in chosen]


class _Widths:
    """The widths of a column whose header is on one line, on at most two, or on as many as it has words."""

    def __init__(self, name: str, cells: Sequence[str]) -> None:
        widest = max(map(cell_len, cells), default=0)
        words = max(map(cell_len, name.split()), default=0)
        self.full, self.least = max(cell_len(name), widest), max(words, widest)
        two = words
        while len(textwrap.wrap(name, max(1, two), break_long_words=False, break_on_hyphens=False)) > 2:
            two += 1
        self.on_two_lines = max(two, widest)


def _grouped(widths: Sequence[int], width: int) -> list[list[int]]:
    """Group the numbers of columns that fit beside each other."""
    groups = [[0]]
    for column in range(1, len(widths)):
        if len(groups[-1]) > 1 and _width([widths[each] for each in (*groups[-1], column)]) > width:
            groups.append([0])
        groups[-1].append(column)
    return groups


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
