"""Quantities: numbers are SI, text may carry one unit and a formula."""

import json
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from vflsim.vocabulary import quantities as q
from vflsim.vocabulary.expressions import Expression
from vflsim.vocabulary.quantities import DIMENSIONS, UNIT_NAMES, split_unit


def read(field, value, **symbols):
    return TypeAdapter(field).validate_python(value, context={"symbols": symbols})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (q.Seconds, "0.1 s", 0.1),
        (q.Seconds, "5 ms", 0.005),
        (q.Seconds, "5ms", 0.005),
        (q.Seconds, "1e3us", 0.001),
        (q.Seconds, "7 ns", 7e-9),
        (q.Seconds, "2 min", 120),
        (q.Seconds, "1.5 h", 5400),
        (q.Seconds, 3, 3.0),
        (q.Seconds, " 3 ", 3.0),
        (q.Seconds, 0, 0.0),
        (q.PerSecond, "2/s", 2),
        (q.PerSecond, "2 / s", 2),
        (q.PerSecond, "30 /min", 0.5),
        (q.PerSecond, "4 Hz", 4),
        (q.BitsPerSecond, "300 Mbps", 3e8),
        (q.BitsPerSecond, "1 GB/s", 8e9),
        (q.BitsPerSecond, "10 kbps", 1e4),
        (q.BitsPerSecond, "300 bit/s", 300),
        (q.BitsPerSecond, "10 kbit/s", 1e4),
        (q.BitsPerSecond, "300 Mbit/s", 3e8),
        (q.BitsPerSecond, "(100*3) Mbit / s", 3e8),
        (q.BitsPerSecond, "1 Gbit/s", 1e9),
        (q.BitsPerSecond, 1000, 1000.0),
        (q.BitsPerSecond, "unlimited", math.inf),
        (q.BitsPerSecond, ".inf", math.inf),
        (q.BitsPerSecond, math.inf, math.inf),
        (q.ByteSize, "1.5 KiB", 1536),
        (q.ByteSize, "2 MB", 2_000_000),
        (q.ByteSize, "16", 16),
        (q.FlopsPerSecond, "2 TFLOPS", 2e12),
        (q.Count, 4, 4),
        (q.Count, 4.0, 4),
        (q.Count, np.int64(4), 4),
        (q.Index, 0, 0),
        (q.Number, -1.5, -1.5),
        (q.Fraction01, 1, 1.0),
        (q.Fraction01, "1/4", 0.25),
    ],
)
def test_numbers_and_units(field, value, expected):
    result = read(field, value)
    assert result == expected
    assert type(result) is (int if field in (q.Count, q.Index, q.ByteSize) else float)


@pytest.mark.parametrize(
    ("field", "value", "written"),
    [
        (q.BitsPerSecond, 300, "write its unit (300 Mbps, say), or insist: 300 bps"),
        (q.BitsPerSecond, "3 * 100", "insist: 300 bps"),
        (q.BitsPerSecond, 999.9, "insist: 999.9 bps"),
        (q.FlopsPerSecond, 5, "write its unit (5 MFLOPS, say), or insist: 5 FLOPS"),
    ],
)
def test_a_small_rate_needs_its_unit_in_a_scenario(field, value, written):
    with pytest.raises(ValidationError) as error:
        read(field, value)
    assert "without a unit is" in str(error.value)
    assert written in str(error.value)
    insisted = written.rpartition("insist: ")[2]
    assert read(field, insisted) == TypeAdapter(field).validate_python(value)  # from Python, plain numbers are SI


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2 + 4*i/N", 4.0),
        ("(2 + 4*i/N) ms", 0.004),
        ("2 + 4*i/N ms", 0.004),
        ("i ms", 0.004),
        ("i*N", 32),
        ("N/i min", 120),
        ("N2s", 5),
        ("N2s s", 5),
        ("4e0s", 4),
    ],
)
def test_a_unit_applies_to_the_whole_formula(value, expected):
    assert read(q.Seconds, value, i=4, N=8, N2s=5) == expected


def test_a_slash_is_a_unit_only_where_the_dimension_has_it():
    assert read(q.PerSecond, "2*x/s", x=3) == 6
    assert read(q.Number, "6/s", s=3) == 2
    assert read(q.BitsPerSecond, "x MB/s", x=3) == 24e6


@given(st.integers(-(10**6), 10**6), st.sampled_from(["ms", "us", "ns"]))
def test_small_units_round_correctly(value, unit):
    exponent = {"ms": 3, "us": 6, "ns": 9}[unit]
    if value >= 0:
        assert read(q.Seconds, f"{value} {unit}") == float(f"{value}e-{exponent}")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        (q.Seconds, "5 MB", "unit 'MB' of '5 MB' does not fit a time; allowed:.*s, ms, us, ns, min, h"),
        (q.Seconds, "5 m", "unit 'm'"),
        (q.Seconds, "5 ms ms", "out of place"),
        (q.Seconds, "5/s", "symbol 's'"),
        (q.Seconds, "3 MB/s", "unit 'MB/s'"),
        (q.Seconds, "4i/N", "unit 'i/N'"),
        (q.Seconds, -1, "-1 is out of range; allowed: a number at least 0"),
        (q.Seconds, "0-1 ms", "'0-1 ms' = -0.001 is out of range"),
        (q.PositiveSeconds, 0, "above 0"),
        (q.PositivePerSecond, 0, "above 0"),
        (q.Seconds, math.nan, "nan is out of range"),
        (q.Seconds, math.inf, "inf is out of range"),
        (q.Seconds, "inf", "symbol 'inf'"),
        (q.Seconds, True, "True is not a time"),
        (q.Count, True, "True is not a number"),
        (q.Seconds, None, "None is not a time"),
        (q.Seconds, [1], r"\[1\] is not a time"),
        (q.Seconds, 1 + 2j, "is not a time"),
        (q.Seconds, "", "empty formula"),
        (q.Seconds, "soon", "symbol 'soon'"),
        (q.Seconds, "exp(1) s", "calls 'exp'"),
        (q.Seconds, 10**400, "integer of 1329 bits is out of range"),
        pytest.param(q.Count, 10**5000, "an integer of 16610 bits is out of range", id="beyond printing"),
        (q.BitsPerSecond, -math.inf, "-inf is out of range; allowed:.*or 'unlimited'"),
        (q.BitsPerSecond, 0, "out of range"),
        (q.Count, 0, "a whole number at least 1"),
        (q.Count, 1.5, "1.5 is out of range; allowed: a whole number"),
        (q.Count, "3 s", "unit 's' of '3 s' does not fit a number"),
        (q.Index, -1, "at least 0"),
        (q.ByteSize, "0.5 B", "whole number"),
        (q.Fraction01, 1.01, "at least 0 and at most 1"),
        (q.Number, "1/0", "divides by zero"),
    ],
)
def test_wrong_quantities_say_what_is_allowed(field, value, says):
    with pytest.raises(ValidationError, match=says):
        read(field, value)


def test_without_a_context_there_are_no_symbols():
    with pytest.raises(ValidationError, match="symbol 'N'"):
        TypeAdapter(q.Seconds).validate_python("4*N")


@given(st.text(max_size=30))
def test_garbage_is_a_validation_error(text):
    for field in (q.Seconds, q.PerSecond, q.BitsPerSecond, q.Count):
        with suppress(ValidationError):
            read(field, text, i=1, N=2)


@given(st.floats(0, 1e12), st.sampled_from([u for d in DIMENSIONS for u in d.units]))
def test_splitting_a_unit_off_keeps_the_formula(value, unit):
    dimension = next(d for d in DIMENSIONS if unit in d.units)
    formula, found = split_unit(f"{value!r} {unit}", dimension)
    assert found == unit
    assert Expression.parse(formula).value() == value


def test_unlimited_survives_json():
    adapter = TypeAdapter(q.BitsPerSecond)
    assert json.loads(adapter.dump_json(math.inf)) == "unlimited"
    assert adapter.validate_json(adapter.dump_json(math.inf)) == math.inf
    assert adapter.validate_json(adapter.dump_json(3e8)) == 3e8


def test_the_schema_offers_numbers_and_described_text():
    number, text = TypeAdapter(q.PositiveSeconds).json_schema()["anyOf"]
    assert number == {"type": "number", "exclusiveMinimum": 0}
    assert text["type"] == "string"
    assert "s, ms, us" in text["description"]
    assert "formulas" in text["description"]
    assert TypeAdapter(q.Count).json_schema()["anyOf"][0] == {"type": "integer", "minimum": 1}


def test_words_of_units_are_listed():
    assert {"s", "ms", "Mbps", "MB", "Hz", "min", "TFLOPS"} <= UNIT_NAMES
    assert "" not in UNIT_NAMES
