"""Amounts in the cells of tables: the numbers behind ``2.8 ± 0.6 s``, ``1.28 (0.97 … 1.7) s`` and ``> 52 s``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

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
