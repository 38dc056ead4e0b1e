"""Tables in the formats of papers, pages and spreadsheets: LaTeX, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from typing import Literal, TypeAlias

from vflsim.text_table import TextTable, markdown_table

UNITS: dict[str, tuple[str, Decimal]] = {
    **{unit: ("s", Decimal(size)) for unit, size in {"µs": "1e-6", "ms": "1e-3", "s": "1"}.items()},
    **{
        unit: ("B", Decimal(size))
        for unit, size in {"B": "1", "kB": "1e3", "MB": "1e6", "GB": "1e9", "TB": "1e12"}.items()
    },
    **{
        unit: ("J", Decimal(size))
        for unit, size in {"nJ": "1e-9", "µJ": "1e-6", "mJ": "1e-3", "J": "1", "kJ": "1e3", "MJ": "1e6"}.items()
    },
    "×": ("×", Decimal(1)),
    "": ("", Decimal(1)),
}
"""Units of cells, each with its dimension and its size."""
_NUMBER = r"[−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_UNIT = rf"(?:\s(?P<unit>{'|'.join(filter(None, UNITS))}))?"
_FORMS = [
    re.compile(rf"(?P<value>{_NUMBER})(?: ± (?P<half>{_NUMBER}))?{_UNIT}"),
    re.compile(rf"(?P<value>{_NUMBER}) \((?P<low>{_NUMBER}) … (?P<high>{_NUMBER})\){_UNIT}"),
    re.compile(rf"(?P<sign>[<>]) (?:(?P<low>{_NUMBER}) … )?(?P<high>{_NUMBER}){_UNIT}"),
]


@dataclass(frozen=True)
class Amount:
    """The numbers of a cell, in ``unit``; None for those that it does not have.

    ``half`` is half of a symmetric interval, ``low`` and ``high`` are its ends otherwise. ``bound``: a cell that says
    that its amount is ``least`` or ``most`` so much has that limit in ``low``, or in ``high``, and no ``value``.
    """

    value: Decimal | None
    half: Decimal | None
    low: Decimal | None
    high: Decimal | None
    unit: str
    bound: Literal["", "least", "most"] = ""

    def ends(self) -> tuple[Decimal | None, Decimal | None]:
        """Return the ends of the interval, or the limit alone."""
        if self.value is not None and self.half is not None:
            return self.value - self.half, self.value + self.half
        return self.low, self.high


def amount_of(cell: str) -> Amount | None:
    """Read a cell; None if it is not one amount alone, as ``—``, ``2 of 3: 45 s, > 60 s`` and words are not."""
    for form in _FORMS:
        if (found := form.fullmatch(cell.strip())) is not None:
            parts = {name: text for name, text in found.groupdict().items() if text is not None}
            value, half, low, high = (_number(parts.get(name)) for name in ("value", "half", "low", "high"))
            unit = parts.get("unit", "")
            if "sign" not in parts:
                return Amount(value, half, low, high, unit)
            if parts["sign"] == ">":
                return Amount(None, None, high if low is None else low, None, unit, "least")
            return Amount(None, None, None, high, unit, "most")
    return None


def common_unit(amounts: list[Amount]) -> str | None:
    """Return the largest unit of amounts, which suits all; None if they are of different dimensions."""
    units = {amount.unit for amount in amounts}
    if len({UNITS[unit][0] for unit in units}) != 1:
        return None
    return max(units, key=lambda unit: UNITS[unit][1])


def in_unit(number: Decimal, unit: str, other: str) -> Decimal:
    """Convert a number from a unit to another, with the same digits."""
    return number * UNITS[unit][1] / UNITS[other][1]


def _number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text.replace(",", "").replace("−", "-"))


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
_HERE = re.compile(r"Score|\* marks|Speed-up|Against |“< |“vs |Quantiles")
"""How the notes begin that say what ± and intervals are: in all tables of a result, and in one."""


def escaped(text: str) -> str:
    """Escape a text, so that LaTeX prints it as it is; quotes and signs become LaTeX's."""
    text = "".join(_ESCAPED.get(character, character) for character in text.replace("--", "-\u200b-"))
    return text.replace("\u200b", "{}")  # no dash of two hyphens


def latex(tables: Sequence[TextTable]) -> str:
    """Write tables as ``table`` environments, for booktabs and siunitx (version 2 or 3).

    A caption has the title and the notes that say what ± and intervals mean; other notes are comments. Columns of
    amounts are of siunitx, with one unit, in the head; cells with other forms, such as bounds, keep their own.
    """
    meant = [note for table in tables for note in table.notes if _EVERYWHERE.match(note)]
    parts = [PREAMBLE]
    for table in tables:
        cells = "".join(cell for row in table.rows for cell in row)
        own = [note for note in table.notes if _HERE.match(note)]
        explained = dict.fromkeys([*(meant if "±" in cells or "…" in cells else []), *own])
        parts.append("\n".join(_environment(table, [*explained])))
    return "\n\n".join(parts) + "\n"


def _environment(table: TextTable, explained: Sequence[str]) -> Iterator[str]:
    for note in table.notes:
        if note not in explained:
            yield f"% {note}"
    caption = " ".join(
        escaped(text if text.endswith(".") else f"{text}.") for text in (table.title, *explained) if text
    )
    columns = [_column(table, place) for place in range(len(table.header))]
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


def _column(table: TextTable, place: int) -> tuple[str, list[str]]:
    """Return a column's kind, and its head and cells."""
    name, cells = table.header[place], [row[place] for row in table.rows]
    amounts = [None if place in table.left else _numeric(cell) for cell in cells]
    known = [amount for amount in amounts if amount is not None]
    unit = common_unit(known) if known else None
    if unit is None:
        return ("l" if place in table.left else "r"), [escaped(name), *map(escaped, cells)]
    numbers = [None if each is None else _latex_number(each, unit) for each in amounts]
    shown = [number or f"{{{escaped(cell)}}}" for number, cell in zip(numbers, cells, strict=True)]
    si = _si(unit)
    head = f"{{{escaped(name)}{f' [{si}]' if si else ''}}}"
    form = _form([number for number in numbers if number is not None])
    return f"S[table-format={form}, separate-uncertainty]", [head, *shown]


def _numeric(cell: str) -> Amount | None:
    """Return a number with ± or alone; siunitx has no cells for other intervals and bounds, nor for ``1 of 2``."""
    found = amount_of(cell)
    return None if found is None or found.value is None or found.low is not None or found.unit == "×" else found


def _latex_number(amount: Amount, unit: str) -> str:
    """Write a number as siunitx reads it: ``2.8(6)`` for 2.8 ± 0.6."""
    assert amount.value is not None
    value = in_unit(amount.value, amount.unit, unit)
    if amount.half is None:
        return f"{value:f}"
    half = in_unit(amount.half, amount.unit, unit)
    places = max(_places(value), _places(half)) if half else _places(value)
    return f"{value:.{places}f}({int(half.scaleb(places))})"


def _form(numbers: Sequence[str]) -> str:
    """Return siunitx's ``table-format``: a sign, the most digits before and behind the point and of uncertainties."""
    parts = [re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:\((\d+)\))?", number) for number in numbers]
    found = [part for part in parts if part is not None]
    sign = "-" if any(part[1] for part in found) else ""
    whole, behind, half = (max(len(part[group] or "") for part in found) for group in (2, 3, 4))
    return (
        f"{sign}{whole}.{behind}" + (f"({half})" if half else "")
        if behind
        else f"{sign}{whole}" + (f"({half})" if half else "")
    )


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _si(unit: str) -> str:
    """Write a unit for siunitx: ``\\si{\\milli\\second}``; empty for none."""
    base = UNITS[unit][0]
    if base not in _SI:
        return ""
    return rf"\si{{{_PREFIXES.get(unit.removesuffix(base), '')}{_SI[base]}}}"


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
