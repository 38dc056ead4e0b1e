"""Amounts in words: one rule for the digits of all intervals."""

import math

import pytest

from vflsim.vocabulary.amounts import quantity, spanned


@pytest.mark.parametrize(("value", "low", "high", "unit", "shown"), [
    (5.567, 3.484, 8.898, "s", "6 (3 … 9) s"),
    (54.49, 43.55, 68.18, "rounds", "54 (44 … 68)"),
    (176.8, 110.0, 284.2, "rounds", "177 (110 … 284)"),
    (48.84e6, 30.39e6, 78.49e6, "B", "49 (30 … 78) MB"),
    (0.00123, 0.0012, 0.0015, "s", "1.23 (1.20 … 1.50) ms"),
    (1.0, 1.0, 1.5, "s", "1.0 (1.0 … 1.5) s"),  # the shorter side has no width
    (2.0, 2.0, 2.0, "s", "2 (2 … 2) s"),
    (4.0, 0.1278, 125.2, "s", "4 (0.13 … 125) s"),  # no end of 0 that is none
    (4.0, 0.0, 125.2, "s", "4 (0 … 125) s"),
    (123_456.0, 123_456.0 - 1e-5, 123_456.0 + 1e-4, "rounds", "123456 (123456 … 123456)"),
])  # fmt: skip
def test_an_interval_with_two_sides_has_the_digits_of_its_shorter_one(
    value: float, low: float, high: float, unit: str, shown: str
) -> None:
    assert str(spanned(value, low, high, unit)) == shown


@pytest.mark.parametrize("value", [0.234567, 5.567, 54.49, 176.8, 9_876.5])
@pytest.mark.parametrize("half", [0.0123, 0.456, 1.04, 2.083, 66.8])
def test_a_symmetric_interval_has_the_same_digits_in_both_forms(value: float, half: float) -> None:
    number, _, after = str(quantity(value, "rounds", half)).partition(" ± ")
    assert str(spanned(value, value - half, value + half, "rounds")).partition(" (")[0] == number
    assert after


def test_numbers_too_long_to_read_have_an_exponent_and_end_in_no_error() -> None:
    assert str(quantity(1e300, "s")) == "1e+300 s"
    assert str(quantity(1e300, "s", 2e299)) == "1e+300 ± 2e+299 s"
    assert str(quantity(1e308, "s", math.inf)) == "1e+308 ± inf s"
    assert str(spanned(1e300, 1e299, 1e301, "s")) == "1e+300 (1e+299 … 1e+301) s"
    assert str(quantity(12345.6, "s", 3.0)) == "12346 ± 3 s"
