"""The vocabulary of scenarios: parts, quantities with units, formulas, selections of clients."""

from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.expressions import Expression, Selection, members
from vflsim.vocabulary.quantities import (
    UNIT_NAMES,
    BitsPerSecond,
    ByteSize,
    Count,
    FlopsPerSecond,
    Fraction01,
    Index,
    Joules,
    NonNegativeNumber,
    Number,
    PerSecond,
    PositiveNumber,
    PositivePerSecond,
    PositiveSeconds,
    Seconds,
    Watts,
)

__all__ = [
    "UNIT_NAMES",
    "BitsPerSecond",
    "ByteSize",
    "Count",
    "Expression",
    "FlopsPerSecond",
    "Fraction01",
    "Index",
    "Joules",
    "NonNegativeNumber",
    "Number",
    "Part",
    "PerSecond",
    "PositiveNumber",
    "PositivePerSecond",
    "PositiveSeconds",
    "Seconds",
    "Selection",
    "Shorthand",
    "Watts",
    "kind_from_text",
    "members",
]
