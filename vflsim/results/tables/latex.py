"""Tables for LaTeX: rules of booktabs, columns of numbers of siunitx, and a caption that says what ± means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from vflsim.results.tables.cells import UNITS, Amount, amount_of, common_unit, in_unit
from vflsim.text_table import TextTable

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
    numbers = [None if each is None else _number(each, unit) for each in amounts]
    shown = [number or f"{{{escaped(cell)}}}" for number, cell in zip(numbers, cells, strict=True)]
    si = _si(unit)
    head = f"{{{escaped(name)}{f' [{si}]' if si else ''}}}"
    form = _form([number for number in numbers if number is not None])
    return f"S[table-format={form}, separate-uncertainty]", [head, *shown]


def _numeric(cell: str) -> Amount | None:
    """Return a number with ± or alone; siunitx has no cells for other intervals and bounds, nor for ``1 of 2``."""
    found = amount_of(cell)
    return None if found is None or found.value is None or found.low is not None or found.unit == "×" else found


def _number(amount: Amount, unit: str) -> str:
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
