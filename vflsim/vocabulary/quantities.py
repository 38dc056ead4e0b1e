"""Field types that carry units: a number (SI), or text such as ``5 ms``, ``2 + 4*i/N``, ``(2 + 4*i/N) ms``.

One unit may stand at the end and applies to the whole formula. The symbols of formulas are looked up in the
validation context, ``model_validate(…, context={"symbols": {"i": 1, "N": 8}})``; without it there are none.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.vocabulary.expressions import Expression, tokenize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Dimension:
    """A physical dimension; ``units`` are multiples of the first one, which plain numbers have."""

    name: str
    units: Mapping[str, Fraction] = field(default_factory=dict, hash=False)


def _dimension(name: str, units: Mapping[str, int | Fraction]) -> Dimension:
    return Dimension(name, {unit: Fraction(factor) for unit, factor in units.items()})


PURE = Dimension("number")
TIME = _dimension(
    "time", {"s": 1, "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9), "min": 60, "h": 3600}
)
RATE = _dimension("rate", {"/s": 1, "Hz": 1, "/min": Fraction(1, 60)})
BANDWIDTH = _dimension(
    "bandwidth",
    {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9}
    | {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
    | {"B/s": 8, "kB/s": 8 * 10**3, "MB/s": 8 * 10**6, "GB/s": 8 * 10**9},
)
SIZE = _dimension("size", {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30})
POWER = _dimension("power", {"W": 1, "mW": Fraction(1, 10**3), "uW": Fraction(1, 10**6), "kW": 10**3})
ENERGY = _dimension(
    "quantity of energy",
    {
        "J": 1,
        "mJ": Fraction(1, 10**3),
        "uJ": Fraction(1, 10**6),
        "nJ": Fraction(1, 10**9),
        "pJ": Fraction(1, 10**12),
        "kJ": 10**3,
    },
)
SPEED = _dimension("speed", {"FLOPS": 1, "kFLOPS": 10**3, "MFLOPS": 10**6, "GFLOPS": 10**9, "TFLOPS": 10**12})

DIMENSIONS: tuple[Dimension, ...] = (PURE, TIME, RATE, BANDWIDTH, SIZE, SPEED, POWER, ENERGY)
UNLIMITED = ("unlimited", "inf", ".inf")
UNIT_NAMES: frozenset[str] = frozenset(part for d in DIMENSIONS for unit in d.units for part in unit.split("/") if part)
"""The names of units, which a scenario's constants must not have."""
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def is_symbol(name: str) -> bool:
    """Whether a formula can have this name for a constant or a client."""
    return bool(_SYMBOL.fullmatch(name)) and name not in UNIT_NAMES and name not in ("i", "m", "N")


FORMULAS = "formulas"
"""The key of a validation context in which formulas that use ``i`` or ``m`` become ``Varying`` numbers."""


class Varying(float):
    """The first client's value of a field, and the formula that gives every client's (``vocabulary.varied``)."""

    formula: str
    factor: Fraction
    has_unit: bool
    quantity: Quantity


@dataclass(frozen=True)
class Quantity:
    """Annotation of a float (or, if ``whole``, int) field: its dimension, its bounds, and whether inf is allowed.

    ``word`` is kept unchanged in place of a number.
    ``plain_from``: in a scenario, a number without a unit must be at least this, or 0. Plain numbers are SI, so a
    bandwidth of 300 would be 300 bit/s; more likely the unit is missing. Values from Python are always SI.

    Example: a share, as in ``kept: Annotated[float, SHARE] = 0.5``::

        SHARE = Quantity(above=0, at_most=1)
        SHARE.convert("1/4", {})  # 0.25
    """

    dimension: Dimension = PURE
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    whole: bool = False
    unlimited: bool = False
    word: str | None = None
    plain_from: float = 0.0

    def convert(self, value: object, symbols: Mapping[str, float | int]) -> float | int:
        """Turn a number or text into a number in SI units; raises ValueError with the value and what is allowed."""
        if self.unlimited and (value in UNLIMITED or value == math.inf):
            return math.inf
        if isinstance(value, str):
            number = self._of_text(value, symbols)
        elif isinstance(value, numbers.Real) and not isinstance(value, bool):
            number = int(value) if isinstance(value, numbers.Integral) else float(value)
        else:
            raise ValueError(f"{value!r} is not a {self.dimension.name}; allowed: {self.allowed}")
        if self.whole and isinstance(number, float) and number.is_integer():
            number = int(number)
        try:
            right = math.isfinite(number) and self._inside(number)
        except OverflowError:  # an int beyond the floats
            right = False
        if not right:
            raise ValueError(f"{_shown(value, number)} is out of range; allowed: {self.allowed}")
        return number if self.whole else float(number)

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        text = "a whole number" if self.whole else "a number"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("above", self.above), ("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        text += f" {' and '.join(bounds)}" if bounds else ""
        text += f" (units: {', '.join(self.dimension.units)})" if self.dimension.units else ""
        words = ("unlimited" if self.unlimited else None, self.word)
        return text + "".join(f" or '{word}'" for word in words if word is not None)

    def _inside(self, number: float | int) -> bool:
        return (
            (not self.whole or isinstance(number, int))
            and (self.above is None or number > self.above)
            and (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
        )

    def _of_text(self, text: str, symbols: Mapping[str, float | int]) -> float | int:
        formula, unit = split_unit(text, self.dimension)
        if unit and unit not in self.dimension.units:
            raise ValueError(
                f"the unit {unit!r} of {text!r} does not fit a {self.dimension.name}; allowed: {self.allowed}"
            )
        number = Expression.parse(formula).value(symbols)
        factor = self.dimension.units.get(unit, Fraction(1))
        # Dividing by 1000 is rounded correctly (5 ms is exactly the float 0.005), multiplying by 0.001 is not.
        return number * factor.numerator / factor.denominator if factor.denominator > 1 else number * factor.numerator

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(_unlimited_as_text, when_used="json")
        return core_schema.with_info_plain_validator_function(
            self._validate, serialization=serialization if self.unlimited else None
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        number: JsonSchemaValue = {"type": "integer" if self.whole else "number"}
        for key, bound in (("exclusiveMinimum", self.above), ("minimum", self.at_least), ("maximum", self.at_most)):
            if bound is not None:
                number[key] = bound
        text = {"type": "string", "description": f"{self.allowed}; formulas of i, m, N and the scenario's constants"}
        return {"anyOf": [number, text] if self.word is None else [{"const": self.word}, number, text]}

    def _validate(self, value: object, info: ValidationInfo) -> float | int | str:
        symbols = (info.context or {}).get("symbols") or {}
        if self.word is not None:
            if value == self.word:
                return self.word
            if isinstance(value, str) and value.isidentifier() and value not in symbols:
                raise ValueError(f"{value!r} is not a {self.dimension.name}; allowed: {self.allowed}")
        number = self.convert(value, symbols)
        if info.context is not None and 0 < number < self.plain_from and not self._has_unit(value):
            plain = f"{number:g} {next(iter(self.dimension.units))}"
            usual = next(unit for unit, factor in self.dimension.units.items() if factor == 10**6)
            raise ValueError(
                f"{value} without a unit is {plain}; allowed: at least {self.plain_from:g} without a unit, less with "
                f"one; write its unit ({number:g} {usual}, say), or insist: {plain}"
            )
        if info.context is not None and FORMULAS in info.context and isinstance(value, str) and not self.whole:
            return self._varying(number, value)
        return number

    def allows(self, numbers: NDArray[np.float64], has_unit: bool) -> bool:
        """Return whether all numbers are within the bounds; ``has_unit``: they were written with one."""
        import numpy as np  # slow to import

        inside = np.isfinite(numbers)
        if self.above is not None:
            inside &= numbers > self.above
        if self.at_least is not None:
            inside &= numbers >= self.at_least
        if self.at_most is not None:
            inside &= numbers <= self.at_most
        if self.plain_from and not has_unit:
            inside &= (numbers <= 0) | (numbers >= self.plain_from)
        return bool(inside.all())

    def _varying(self, number: float, value: str) -> float:
        """Return the number, as a ``Varying`` one if the formula uses ``i`` or ``m``."""
        if self.unlimited and value in UNLIMITED:
            return number
        formula, unit = split_unit(value, self.dimension)
        if not Expression.parse(formula).names & {"i", "m"}:
            return number
        varying = Varying(number)
        varying.formula, varying.factor = formula, self.dimension.units.get(unit, Fraction(1))
        varying.has_unit, varying.quantity = unit != "", self
        return varying

    def _has_unit(self, value: object) -> bool:
        return isinstance(value, str) and split_unit(value, self.dimension)[1] != ""


@lru_cache(maxsize=1024)
def split_unit(text: str, dimension: Dimension = PURE) -> tuple[str, str]:
    """Split ``(2 + i) ms`` into formula and unit (empty if none): the unit follows a complete formula.

    ``2*x/s`` ends in a unit only where the dimension knows ``/s``; elsewhere it divides by a symbol.
    """
    tokens = tokenize(text)
    if len(tokens) < 2 or tokens[-1].kind != "name":
        return text, ""
    complete = [token.kind != "operator" or token.text == ")" for token in tokens]
    last = tokens[-1]
    if complete[-2]:
        return text[: last.start], last.text
    if tokens[-2].text == "/" and len(tokens) > 2:
        if len(tokens) > 3 and tokens[-3].kind == "name" and complete[-4]:
            return text[: tokens[-3].start], f"{tokens[-3].text}/{last.text}"
        if complete[-3] and f"/{last.text}" in dimension.units:
            return text[: tokens[-2].start], f"/{last.text}"
    return text, ""


def _shown(value: object, number: float | int) -> str:
    if isinstance(number, int) and number.bit_length() > 1023:
        return f"an integer of {number.bit_length()} bits"
    plain = isinstance(value, numbers.Real) or str(value) == str(number)
    return str(value) if plain else f"{value!r} = {number:g}"


def _unlimited_as_text(value: float) -> float | str:
    return "unlimited" if value == math.inf else value  # JSON has no infinity


Number = Annotated[float, Quantity()]
"""A finite number, or a formula. Example: ``factor: Number = 2`` reads ``3/4``, with a constant also ``2*c``."""
PositiveNumber = Annotated[float, Quantity(above=0)]
"""A number above 0. Example: ``lr: PositiveNumber = 0.1`` refuses 0."""
NonNegativeNumber = Annotated[float, Quantity(at_least=0)]
"""A number of at least 0. Example: ``decay: NonNegativeNumber = 0.0`` refuses -1."""
Fraction01 = Annotated[float, Quantity(at_least=0, at_most=1)]
Count = Annotated[int, Quantity(at_least=1, whole=True)]
"""A whole number of at least 1. Example: ``steps: Count = 5`` refuses 0 and 2.5."""
CountOrAll = Annotated[int | Literal["all"], Quantity(at_least=1, whole=True, word="all")]
Index = Annotated[int, Quantity(at_least=0, whole=True)]
"""A whole number of at least 0. Example: ``wait: Index = 0`` refuses -1."""
Seconds = Annotated[float, Quantity(TIME, at_least=0)]
"""Seconds, at least 0. Example: ``rest: Seconds = 0.0`` reads ``5 ms`` as 0.005."""
PositiveSeconds = Annotated[float, Quantity(TIME, above=0)]
"""Seconds, above 0. Example: ``patience: PositiveSeconds = 1.0`` reads ``2 min`` as 120."""
SHORTEST = 1e-6
"""The least mean seconds of a repetition: shorter ones could keep a run from any progress."""
Period = Annotated[float, Quantity(TIME, at_least=SHORTEST)]
PerSecond = Annotated[float, Quantity(RATE, at_least=0)]
"""A rate, at least 0 per second. Example: ``arrivals: PerSecond = 1.0`` reads ``30 /min`` as 0.5."""
PositivePerSecond = Annotated[float, Quantity(RATE, above=0)]
PLAIN_FROM = 1000.0
"""Bit/s and FLOPS from which a scenario may leave out the unit: no link or device is slower than 1 kbit/s."""
BitsPerSecond = Annotated[float, Quantity(BANDWIDTH, above=0, unlimited=True, plain_from=PLAIN_FROM)]
"""A bandwidth in bit/s, or ``unlimited``. Example: ``up: BitsPerSecond`` reads ``2 MB/s`` as 16,000,000."""
ByteSize = Annotated[int, Quantity(SIZE, at_least=0, whole=True)]
"""A number of bytes. Example: ``header: ByteSize = 0`` reads ``2 KiB`` as 2048."""
FlopsPerSecond = Annotated[float, Quantity(SPEED, above=0, plain_from=PLAIN_FROM)]
"""The speed of a device. Example: ``rate: FlopsPerSecond`` reads ``2 GFLOPS`` as 2,000,000,000."""
Watts = Annotated[float, Quantity(POWER, at_least=0)]
"""A power. Example: ``idle: Watts = 0.0`` reads ``300 mW`` as 0.3."""
Joules = Annotated[float, Quantity(ENERGY, at_least=0)]
"""An energy. Example: ``per_byte: Joules = 0.0`` reads ``0.1 uJ`` as 1e-7."""

_COUNT: TypeAdapter[int] = TypeAdapter(Count)
_SECONDS: TypeAdapter[float] = TypeAdapter(PositiveSeconds)
_STEPS = re.compile(r"(?P<amount>.*\S)\s+(?P<unit>[a-z]+?)s?\s*", re.DOTALL)


def counted(value: Any, units: Collection[str], info: ValidationInfo) -> tuple[float, Any]:
    """Read ``10 rounds``, if ``round`` is one of the ``units``, or else a duration; return the amount and its unit."""
    steps = _STEPS.fullmatch(value) if isinstance(value, str) else None
    if steps is None or steps["unit"] not in units:
        return _SECONDS.validate_python(value, context=info.context), "seconds"
    return _COUNT.validate_python(steps["amount"], context=info.context), f"{steps['unit']}s"
