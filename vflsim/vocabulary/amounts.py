"""Amounts: numbers with a unit and an interval, and how people read them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "J": ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")),
    "%": ((0.01, "%"),),
    "rounds": ((1.0, ""),),
    "updates": ((1.0, ""),),
}
"""The units that an amount is shown in, by its own unit, with their sizes: the largest first."""
_DURATIONS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LONG = 1e15
"""Numbers from here on have an exponent."""
_ROUNDING = 1e-9
"""Relative error of a number that is not rounded away from it."""
_SIGNS = {"": "", "least": "> ", "most": "< "}

Bound: TypeAlias = Literal["", "least", "most"]
Rounded: TypeAlias = tuple[str, str, str, str]
"""The digits of a value, half its interval, and the interval's ends; empty for those that there are not."""


@final
@dataclass(frozen=True)
class Amount:
    """A number in ``unit`` (s, B, J, a share for %), with ± ``half`` its interval, or with its ends; NaN: unknown.

    Without a ``value`` the ends are all that is known. With a ``bound`` the amount is at ``least`` its ``low`` end, or
    at ``most`` its ``high`` end; the other end, if there is one, is that of the bound itself. ``form`` says which
    digits are shown: as many as the interval's width tells (empty), those of a ``share``, ``three`` digits, the two
    of a ``rough`` duration, or those of a format such as ``.4f``. ``before`` and ``after`` are words around the amount.
    """

    value: float = math.nan
    unit: str = ""
    half: float = math.nan
    low: float = math.nan
    high: float = math.nan
    bound: Bound = ""
    form: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        """Write the amount: ``12.3 ± 0.4 s``, ``5.3 (2.1 … 13) s``, ``−5 … 2 s``, ``> 20 s``; a dash for none."""
        (value, half, low, high), unit = self.rounded()
        ends = " … ".join(_signed(end) for end in (low, high) if end)
        value = _signed(value)
        text = f"{value} ± {half}" if half else f"{value} ({ends})" if value and ends else value or ends or "—"
        return f"{self.before}{_SIGNS[self.bound]}{text}{f' {unit}' if unit and text != '—' else ''}{self.after}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @property
    def key(self) -> float:
        """The number that stands for the amount where amounts are ordered, in ``unit``."""
        return next((each for each in (self.value, self.low, self.high) if not math.isnan(each)), math.nan)

    @property
    def plain(self) -> bool:
        """Whether it is a number, alone or with ±, and no words."""
        others = math.isnan(self.low) and math.isnan(self.high) and not self.bound
        return others and not math.isnan(self.value) and not self.before and not self.after

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, or the limit alone."""
        if not math.isnan(self.half):
            return self.value - self.half, self.value + self.half
        return math.nan if self.bound == "most" else self.low, math.nan if self.bound == "least" else self.high

    @property
    def scale(self) -> tuple[float, str]:
        """The size and the name of the unit that the amount is shown in."""
        if self.form == "rough":
            return next((pair for pair in _DURATIONS if self.value >= pair[0]), _DURATIONS[-1])
        size = max((abs(end) for end in (self.low, self.high) if not math.isnan(end)), default=0.0)
        return _scale(size if math.isnan(self.value) else self.value, self.unit)

    def rounded(self) -> tuple[Rounded, str]:
        """Return the digits that are shown, and their unit."""
        scale, unit = self.scale
        value, half, low, high = (each / scale for each in (self.value, self.half, self.low, self.high))
        if self.form == "share":
            ends = _rounded(math.floor, low), _rounded(math.ceil, high)
            return _each(lambda each: f"{each:.3f}", value, _rounded(math.ceil, half), *ends), unit
        if self.form == "three":
            if not math.isnan(value):
                return _each(three_digits, value, half, low, high), unit
            least, most = three_digits(low, "least"), three_digits(high, "most")
            return ("", "", "" if math.isnan(low) else least, "" if math.isnan(high) else most), unit
        if self.form == "rough":
            return _each(lambda each: f"{float(f'{each:.2g}'):g}", value, half, low, high), unit
        if self.form:
            return _each(lambda each: format(each, self.form), value, half, low, high), unit
        return _telling(value, half, low, high), unit


def quantity(value: float, unit: str, half: float = math.nan) -> Amount:
    """A number with its unit, ± half an interval of one significant digit (two if the first is 1): ``2.3 ± 0.4 s``."""
    return Amount(value, unit, half)


def span(low: float, high: float, unit: str) -> Amount:
    """An interval with its unit: ``−5.5 … 0.2 s``."""
    return Amount(unit=unit, low=low, high=high)


def spanned(value: float, low: float, high: float, unit: str) -> Amount:
    """A number with an interval that is not symmetric: ``2.3 (2.1 … 2.9) s``.

    It has the digits that the number ± the interval's shorter side has; ± the longer one if the shorter has no width.
    What these would make 0 has more, where the interval is on one side of 0.
    """
    return Amount(value, unit, low=low, high=high)


def share(value: float, low: float = math.nan, high: float = math.nan) -> Amount:
    """A share, or a difference of shares, with its interval: ``0.944 ± 0.007``; if cut ``0.990 (0.961 … 1.000)``."""
    half = max(value - low, high - value)
    if math.isnan(half) or math.isclose(value - low, high - value, rel_tol=1e-6, abs_tol=_ROUNDING):
        return Amount(value, half=half, form="share")
    return Amount(value, low=low, high=high, form="share")


def limit(bound: Bound, value: float, unit: str) -> Amount:
    """A limit with its unit: ``> 20 s`` for what is at ``least`` so much, ``< 20 s`` for at ``most``."""
    low, high = (math.nan, value) if bound == "most" else (value, math.nan)
    return Amount(unit=unit, low=low, high=high, bound=bound)


def roughly(seconds: float) -> Amount:
    """A duration to two digits, in the unit that people would use: ``0.38 s``, ``12 s``, ``3.4 min``, ``1.2 h``."""
    return Amount(seconds, "s", form="rough")


def with_words(amount: Amount, after: str, before: str = "") -> Amount:
    """Return an amount with words behind it, and before it."""
    return replace(amount, before=before + amount.before, after=amount.after + after)


def three_digits(value: float, bound: str = "exact") -> str:
    """Format a positive number with three digits: ``0.0123``, ``4.56``, ``12,300``.

    The number of a bound is rounded so that it stays one: up if the truth is at ``most`` the value, down if at
    ``least``.
    """
    if bound in ("most", "least") and math.isfinite(value):
        step = 10.0 ** (math.floor(math.log10(value)) - 2)
        nearly = _ROUNDING if bound == "least" else -_ROUNDING
        value = (math.ceil if bound == "most" else math.floor)(value / step + nearly) * step
    return f"{value:.3g}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _places(value: float, half: float) -> int | None:
    """Return the decimal places of a number ± half an interval; None for an interval without width.

    They are those of half the interval's one significant digit (two if the first is 1), and no more than the number's
    five digits: an interval as narrow as rounding errors says nothing. Nor do digits of numbers from ``_LONG`` on.
    """
    if half == 0 or not max(abs(value), half) < _LONG:
        return None
    exponent = math.floor(math.log10(half))
    places = max(0, (1 if half < 2 * 10**exponent else 0) - exponent)
    return places if places <= max(0, 4 - math.floor(math.log10(max(abs(value), half)))) else None


def _telling(value: float, half: float, low: float, high: float) -> Rounded:
    """Return the digits that the width of an interval tells; four digits without any."""
    if not math.isnan(half):
        sides = [half]
    elif math.isnan(value + low + high):
        sides = []
    else:
        sides = sorted(max(side, 0.0) for side in (value - low, high - value))
    places = next((known for side in sides if (known := _places(value, side)) is not None), None)
    if places is None:
        narrow = not math.isnan(half) and max(abs(value), half) < _LONG
        return _each(_four_digits, value, 0.0 if narrow else half, low, high)

    def text(each: float) -> str:
        more = _places(each, abs(each)) if low * high > 0 and abs(each) <= 0.5 / 10**places else None
        return f"{each:.{more or places}f}"

    return _each(text, value, half, low, high)


def _each(text: Callable[[float], str], *numbers: float) -> Rounded:
    value, half, low, high = ("" if math.isnan(each) else text(each) for each in numbers)
    return value, half, low, high


def _rounded(towards: Callable[[float], int], value: float) -> float:
    """Round to thousandths, down or up."""
    slack = _ROUNDING if towards is math.floor else -_ROUNDING
    return value if math.isnan(value) else towards(1000 * value + slack) / 1000


def _four_digits(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < _LONG else f"{value:.4g}"


def _signed(text: str) -> str:
    return f"−{text[1:]}" if text.startswith("-") else text


def _scale(value: float, unit: str) -> tuple[float, str]:
    scales = _SCALES.get(unit, ((1.0, unit),))
    if value == 0:
        return next((pair for pair in scales if pair[0] == 1.0), scales[-1])
    return next((pair for pair in scales if abs(value) >= pair[0]), scales[-1])
