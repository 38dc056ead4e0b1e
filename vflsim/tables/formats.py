"""Tables in the formats of papers, pages, spreadsheets and programs: LaTeX, Markdown, HTML, CSV and JSON."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from io import StringIO
from typing import Literal, TypeAlias

from vflsim.errors import printable
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount

PREAMBLE = r"""% in the preamble: \usepackage{booktabs} \usepackage{siunitx}"""
_ESCAPED = {
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "`": r"\char96{}",
    "±": r"\ensuremath{\pm}",
    "−": r"\ensuremath{-}",
    "×": r"\ensuremath{\times}",
    "÷": r"\ensuremath{\div}",
    "≥": r"\ensuremath{\ge}",
    "≤": r"\ensuremath{\le}",
    "≈": r"\ensuremath{\approx}",
    "√": r"\ensuremath{\surd}",
    "→": r"\ensuremath{\rightarrow}",
    "µ": r"\ensuremath{\mu}",
    "ε": r"\ensuremath{\varepsilon}",
    "θ": r"\ensuremath{\theta}",
    "φ": r"\ensuremath{\varphi}",
    "²": r"\ensuremath{^2}",
    "…": r"\ldots{}",
    "—": "---",
    "–": "--",
    "“": "``",
    "”": "''",
    "’": "'",
    "\u00a0": "~",
}
_SI = {"s": r"\second", "B": r"\byte", "J": r"\joule"}
_PREFIXES = {"n": r"\nano", "µ": r"\micro", "m": r"\milli", "k": r"\kilo", "M": r"\mega", "G": r"\giga", "T": r"\tera"}
_EVERYWHERE = re.compile(r"Means over|Mean rounds? of|Mean round: of|Costs |± leaves")
_HERE = re.compile(r"Score|\* marks|Speed-up|Against |“< |“vs |Quantiles|The value at|Told apart")
"""How the notes begin that say what ± and intervals are: in all tables of a result, and in one."""


def escaped(text: str) -> str:
    """Escape a text, so that LaTeX prints it as it is; quotes and signs become LaTeX's."""
    text = "".join(_ESCAPED.get(character, character) for character in text.replace("--", "-\u200b-"))
    return text.replace("\u200b", "{}")  # no dash of two hyphens


def latex(tables: Sequence[DataTable]) -> str:
    """Write tables as ``table`` environments, for booktabs and siunitx (version 2 or 3).

    A caption has the title and the notes that say what ± and intervals mean; other notes are comments. Columns of
    amounts are of siunitx, with one unit, in the head; cells with other forms, such as bounds, keep their own.
    """
    meant = [note for table in tables for note in table.notes if _EVERYWHERE.match(note)]
    parts = [PREAMBLE]
    for table in tables:
        cells = "".join(cell for row in table.rows for cell in row)
        notes = [note for note in table.notes if _HERE.match(note)]
        explained = dict.fromkeys([*(meant if "±" in cells or "…" in cells else []), *notes])
        parts.append("\n".join(_environment(table, [*explained])))
    return "\n\n".join(parts) + "\n"


def _environment(table: DataTable, explained: Sequence[str]) -> Iterator[str]:
    for note in table.notes:
        if note not in explained:
            yield f"% {note}"
    caption = " ".join(
        escaped(text if text.endswith(".") else f"{text}.") for text in (table.title, *explained) if text
    )
    columns = [_siunitx(table, place) for place in range(len(table.header))]
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{caption}}}"
    yield rf"  \begin{{tabular}}{{@{{}}{' '.join(kind for kind, _ in columns)}@{{}}}}"
    yield r"    \toprule"
    head, *rows = zip(*(cells for _, cells in columns), strict=True)
    yield f"    {' & '.join(head)} \\\\"
    yield r"    \midrule"
    for row in rows:
        yield f"    {' & '.join(row)} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _siunitx(table: DataTable, place: int) -> tuple[str, list[str]]:
    """Return a column's kind, and its head and cells."""
    name, texts = table.heads[place], [row[place] for row in table.rows]
    amounts = [_plain(row[place]) for row in table.cells]
    unit = _common_unit(each for each in amounts if each is not None)
    if unit is None or place in table.left:
        return "l" if place in table.left else "r", [escaped(name), *map(escaped, texts)]
    size, called = unit
    numbers = [None if each is None else _number(each, size) for each in amounts]
    cells = [number[0] if number else f"{{{escaped(text)}}}" for number, text in zip(numbers, texts, strict=True)]
    known = [number for number in numbers if number is not None]
    whole, behind, half = (max(sizes) for sizes in zip(*(sizes for _, sizes in known), strict=True))
    sign = "-" * any(number.startswith("-") for number, _ in known)
    form = f"{sign}{whole}{f'.{behind}' * bool(behind)}{f'({half})' * bool(half)}"
    prefix, base = _PREFIXES.get(called[:-1], ""), _SI.get(called[-1:])
    si = rf" [\si{{{prefix}{base}}}]" if base else ""
    return f"S[table-format={form}, separate-uncertainty]", [f"{{{escaped(name)}{si}}}", *cells]


def _plain(cell: Cell) -> Amount | None:
    """Return a number alone or with ±; siunitx has no cells for other intervals, bounds and words."""
    amount = Amount(cell) if isinstance(cell, int) else cell
    return amount if isinstance(amount, Amount) and amount.plain and amount.unit != "×" else None


def _common_unit(amounts: Iterable[Amount]) -> tuple[float, str] | None:
    """Return the size and the name of the largest unit of amounts, which suits all; None if they differ in kind."""
    scales = {(each.scale, each.unit if each.scale[1] else "") for each in amounts}
    return max(scale for scale, _ in scales) if len({unit for _, unit in scales}) == 1 else None


def _number(amount: Amount, size: float) -> tuple[str, tuple[int, int, int]]:
    """Write a number as siunitx reads it: ``2.8(6)`` for 2.8 ± 0.6, with the digits shown in the amount's own unit.

    Also return how many digits are before the point, behind it, and of half the interval.
    """
    (value, half, _, _), _ = amount.rounded()
    shift = round(math.log10(amount.scale[0] / size))
    number, spread = Decimal(value).scaleb(shift), Decimal(half or 0).scaleb(shift)
    places = max(0, -int(number.as_tuple().exponent), -int(spread.as_tuple().exponent) if spread else 0)
    text, digits = f"{number:.{places}f}", f"{int(spread.scaleb(places))}" if half else ""
    whole = len(text.lstrip("-").partition(".")[0])
    return text + (f"({digits})" if half else ""), (whole, places, len(digits))


FormatName: TypeAlias = Literal["latex", "markdown", "csv", "html"]


def written(tables: Sequence[DataTable], form: FormatName) -> str:
    """Write tables in a format, ending in a line end."""
    return FORMATS[form](tables)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table: first column left-aligned, the others right-aligned."""
    cells = [[printable(cell, "").replace("|", "\\|") for cell in row] for row in (header, *rows)]
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])]


def markdown(tables: Iterable[DataTable], title: str = "", left_out: Mapping[str, str] | None = None) -> str:
    """Write tables in Markdown, each with its notes, below a ``title`` and above the reasons for what was left out.

    A table with the page's title is its first section, without a heading of its own.
    """
    lines = [f"# {title}", ""] if title else []
    for table in tables:
        lines += [f"## {table.title}", ""] if table.title not in ("", title) else []
        lines += [*markdown_table(table.header, table.rows), ""]
        lines += [*(f"- {note}" for note in table.notes), ""] if table.notes else []
    if left_out:
        lines += ["## Left out", "", *(f"- {name}: {why}" for name, why in left_out.items()), ""]
    return printable("\n".join(lines))


def _csv(tables: Sequence[DataTable]) -> str:
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
        columns = [column for place in range(len(table.header)) for column in _columns(table, place)]
        out.writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _columns(table: DataTable, place: int) -> list[list[str]]:
    """Return a column as shown, with its head, and behind it its numbers if it has amounts."""
    name, shown = table.header[place], [row[place] for row in table.rows]
    amounts = [cell if isinstance(cell, Amount) else Amount() for cell in (row[place] for row in table.cells)]
    unit = _common_unit(each for each in amounts if not math.isnan(each.key))
    if unit is None:
        return [[name, *shown]]
    size, called = unit
    named = f" [{called}]" if called not in ("", "×") else ""
    numbers = [[value / size for value in (each.value, *each.ends)] for each in amounts]
    texts = [["" if math.isnan(value) else f"{value:.9g}" for value in row] for row in numbers]
    heads = [f"{name}: {what}{named}" for what in ("value", "low", "high")]
    return [[name, *shown], *([head, *column] for head, column in zip(heads, zip(*texts, strict=True), strict=True))]


FORMATS: Mapping[FormatName, Callable[[Sequence[DataTable]], str]] = {
    "latex": latex,
    "markdown": markdown,
    "csv": _csv,
    "html": lambda tables: "\n".join(table._repr_html_() for table in tables) + "\n",
}


TABLES_FILE = "tables.json"
"""Tables with their numbers, beside the page that shows them."""


def packed(tables: Iterable[DataTable]) -> str:
    """Write tables with their numbers as JSON, which :func:`unpacked` reads."""
    return json.dumps([asdict(table) for table in tables], ensure_ascii=False, indent=1) + "\n"


def unpacked(text: str) -> list[DataTable]:
    """Read tables from JSON. Raises ValueError for any other text."""
    from pydantic import TypeAdapter

    return TypeAdapter(list[DataTable]).validate_json(text)
