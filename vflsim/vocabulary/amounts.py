"""Amounts as people read them: a number, its unit, and its interval."""

from __future__ import annotations

import math

_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "J": ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")),
}

_LONG = 1e15
"""Numbers from here on have an exponent."""
_DURATIONS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def quantity(value: float, unit: str, half: float = math.nan) -> str:
    """A number with its unit, ± half an interval of one significant digit (two if the first is 1): ``2.3 ± 0.4 s``."""
    if math.isnan(value):
        return "—"
    scale, shown = _scale(value, unit)
    value, half = value / scale, half / scale
    if math.isnan(half):
        text = _four_digits(value)
    elif not max(abs(value), half) < _LONG:
        text = f"{_four_digits(value)} ± {_four_digits(half)}"
    elif (places := _places(value, half)) is None:
        text = f"{_four_digits(value)} ± 0"
    else:
        text = f"{value:.{places}f} ± {half:.{places}f}"
    return _signed(f"{text} {shown}".strip())


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


def _four_digits(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < _LONG else f"{value:.4g}"


def roughly(seconds: float) -> str:
    """A duration to two digits, in the unit that people would use: ``0.38 s``, ``12 s``, ``3.4 min``, ``1.2 h``."""
    scale, unit = next((pair for pair in _DURATIONS if seconds >= pair[0]), _DURATIONS[-1])
    return f"{float(f'{seconds / scale:.2g}'):g} {unit}"


def thousandths(value: float, half: float = math.nan) -> str:
    """A share with three digits, ± half an interval rounded up: ``0.944 ± 0.007``."""
    return f"{value:.3f}" if math.isnan(half) else f"{value:.3f} ± {math.ceil(1000 * half - 1e-9) / 1000:.3f}"


def share(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """A share, or a difference of shares, with its interval: ``0.944 ± 0.007``; if cut ``0.990 (0.961 … 1.000)``."""
    half = max(value - low, high - value)
    if math.isnan(half) or math.isclose(value - low, high - value, rel_tol=1e-6, abs_tol=1e-9):
        return thousandths(value, half)
    ends = math.floor(1000 * low + 1e-9) / 1000, math.ceil(1000 * high - 1e-9) / 1000
    return _signed(f"{value:.3f} ({' … '.join(_signed(f'{end:.3f}') for end in ends)})")


def span(low: float, high: float, unit: str) -> str:
    """An interval with its unit: ``−5.5 … 0.2 s``."""
    scale, shown = _scale(max(abs(low), abs(high)), unit)
    ends = (_signed(f"{end / scale:.4g}") for end in (low, high))
    return f"{' … '.join(ends)} {shown}".strip()


def spanned(value: float, low: float, high: float, unit: str) -> str:
    """A number with an interval that is not symmetric: ``2.3 (2.1 … 2.9) s``.

    It has the digits that the number ± the interval's shorter side has; ± the longer one if the shorter has no width.
    What these would make 0 has more, where the interval is on one side of 0.
    """
    scale, shown = _scale(value, unit)
    value, low, high = value / scale, low / scale, high / scale
    sides = sorted(max(side, 0.0) for side in (value - low, high - value))
    places = next((found for side in sides if (found := _places(value, side)) is not None), None)

    def text(each: float) -> str:
        if places is None:
            return _signed(_four_digits(each))
        more = _places(each, abs(each)) if low * high > 0 and abs(each) <= 0.5 / 10**places else None
        return _signed(f"{each:.{more or places}f}")

    return f"{text(value)} ({text(low)} … {text(high)}) {shown}".strip()


def _signed(text: str) -> str:
    return f"−{text[1:]}" if text.startswith("-") else text


def _scale(value: float, unit: str) -> tuple[float, str]:
    shown = "" if unit in ("rounds", "updates") else unit
    scales = _SCALES.get(unit, ((1.0, shown),))
    if value == 0:
        return 1.0, shown
    return next((pair for pair in scales if abs(value) >= pair[0]), scales[-1])
