"""Formulas agree with Python's own arithmetic, and nothing but formulas is understood."""

import re
import string
from contextlib import suppress
from fractions import Fraction

import pytest
import sympy
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from vflsim.vocabulary.expressions import MAX_LENGTH, Expression, Selection, members

SYMBOLS = {"i": 3, "m": 7, "N": 8, "x": 0.375, "big_1": 2.5e7}

numbers = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["0.5", "1e3", ".25", "2.", "1.5E-2", "0"]))
leaves = st.one_of(numbers, st.sampled_from(sorted(SYMBOLS)))


def grow(inner):
    return st.one_of(
        st.builds("{}{}{}".format, inner, st.sampled_from(["+", "-", "*", "/", " + ", " - ", " * ", " / "]), inner),
        st.builds("{}{}".format, st.sampled_from(["-", "+", "- "]), inner),
        st.builds("({})".format, inner),
        st.builds("{}{}{}".format, leaves, st.sampled_from(["**", " ** -"]), st.sampled_from(["0", "2", "3"])),
    )


formulas = st.recursive(leaves, grow, max_leaves=12).filter(lambda text: len(text) <= MAX_LENGTH)


def python_value(text, symbols):
    """Python's own evaluation of a generated formula (never of anything else); None where it has no real value."""
    try:
        value = eval(text, {"__builtins__": {}}, dict(symbols))
    except (ZeroDivisionError, OverflowError):
        return None
    return None if isinstance(value, complex) else value


@given(formulas)
def test_values_are_pythons_values(text):
    expected = python_value(text, SYMBOLS)
    expression = Expression.parse(text)
    if expected is None:
        with pytest.raises(ValueError, match=r"divides by zero|too large|not a real number"):
            expression.value(SYMBOLS)
    else:
        value = expression.value(SYMBOLS)
        assert value == expected
        assert type(value) is type(expected)


@given(formulas)
def test_floor_values_are_pythons_exact_values_with_floor_division(text):
    exact = {name: Fraction(str(value)) for name, value in SYMBOLS.items()}
    wrapped = re.sub(r"(?<![\w.])(\d+\.?\d*(?:[eE]-?\d+)?|\.\d+)", r"F('\1')", text).replace("/", "//")
    try:
        expected = Fraction(eval(wrapped, {"__builtins__": {}, "F": Fraction}, exact))
    except ZeroDivisionError:
        expected = None
    expression = Expression.parse(text)
    if expected is None or expected.denominator != 1:
        with pytest.raises(ValueError, match=r"divides by zero|whole numbers"):
            expression.floor_value(SYMBOLS)
    else:
        assert expression.floor_value(SYMBOLS) == expected


@given(formulas)
def test_sympy_forms_have_the_same_value(text):
    expression = Expression.parse(text)
    try:
        expected = expression.value(SYMBOLS)
    except ValueError:
        return
    exact = {sympy.Symbol(name): sympy.Rational(str(value)) for name, value in SYMBOLS.items()}
    value = expression.sympy().subs(exact)
    scale = sum(abs(float(word)) for word in re.findall(r"\d+", text)) + 1
    assert complex(value).real == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale)


def test_sympy_forms_are_exact_and_symbolic():
    i, n = sympy.symbols("i N")
    assert Expression.parse("2 + 4*i/N").sympy() == 2 + 4 * i / n
    assert Expression.parse("0.1").sympy() == sympy.Rational(1, 10)


def test_names_are_the_symbols_mentioned():
    assert Expression.parse("2 + 4*i/N - i*scale_2").names == {"i", "N", "scale_2"}
    assert Expression.parse("1e3").names == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-2**2", -4), ("2**-1", 0.5), ("2**3**2", 512), ("-2**-2", -0.25), ("7/2*2", 7.0), ("2-3-4", -5), ("--3", 3)],
)
def test_signs_and_binding_strengths_are_pythons(text, expected):
    assert Expression.parse(text).value() == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("N/2", 2), ("N/2+1", 3), ("N/3*3", 3), ("0.29*100", 29), ("-N/2", -3), ("6*N/10", 3)]
)
def test_division_rounds_down_in_selections(text, expected):
    assert Expression.parse(text).floor_value({"N": 5}) == expected


def test_a_formula_that_is_not_whole_is_no_client_number():
    with pytest.raises(ValueError, match=r"'0.7\*N' is 3.5; allowed: whole numbers"):
        Expression.parse("0.7*N").floor_value({"N": 5})


@given(st.text(max_size=40))
def test_garbage_raises_nothing_but_value_errors(text):
    with suppress(ValueError):
        Expression.parse(text).value(SYMBOLS)


@given(st.text(alphabet=string.digits + "..eEiNx+-**//() ", max_size=60))
def test_nearly_formulas_raise_nothing_but_value_errors(text):
    for use in (Expression.value, Expression.floor_value):
        with suppress(ValueError):
            use(Expression.parse(text), SYMBOLS)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "__import__",
        "().__class__",
        "i.real",
        "[i for i in N]",
        "lambda: 0",
        "exp(3)",
        "i(3)",
        "2 3",
        "2 i",
        "2//3",
        "2 % 3",
        "1 if i else 2",
        "0x10",
        "1_000",
        "1j",
        "٣",
        "i, N",
        "(1",
        "1)",
        "()",
        "1+",
        "*1",
        "",
        "  ",
        "2***3",
        "9**9**9",
        "(((9**64)**64)**64)**64",
        "1e999999999",
        "1e-999999999",
        "0.1**-64*1e300",
        "9**(10**9 + 0*i)",
        "(0-2)**0.5",
        "0**-1",
        "1/0",
        "1/(i-3)",
        "(" * 10_000 + "1" + ")" * 10_000,
        "(" * 100 + "1" + ")" * 100,
        "2**" * 80 + "2",
        "-" * 10_000 + "1",
        "1+" * 10_000 + "1",
        "9" * 10_000,
    ],
)
def test_hostile_inputs_are_refused(text):
    for use in (Expression.value, Expression.floor_value):
        with pytest.raises(ValueError, match=r"\w") as caught:
            use(Expression.parse(text), SYMBOLS)
        assert len(str(caught.value)) < 2 * MAX_LENGTH


def test_a_huge_power_does_not_hang_sympy():
    assert Expression.parse("9**(10**9 + 0*i)").sympy().free_symbols == {sympy.Symbol("i")}


def test_values_stay_within_the_floats():
    assert Expression.parse("2**63*2**64").value() == 2**127
    with pytest.raises(ValueError, match="too large"):
        Expression.parse("(2**64)**15*2**64").value()
    with pytest.raises(ValueError, match="too large"):
        Expression.parse("1e200*1e200").value()


def test_calling_a_function_names_it():
    with pytest.raises(ValueError, match=r"calls 'exp'; allowed:.*no functions"):
        Expression.parse("1 + exp(3)")


def test_an_unknown_symbol_is_named_and_the_known_ones_listed():
    with pytest.raises(ValueError, match=r"symbol 'j' in '2\*j' is not known; allowed: N, i$"):
        Expression.parse("2*j").value({"i": 1, "N": 8})
    with pytest.raises(ValueError, match="symbol 'j' is not known; allowed: numbers"):
        Expression.parse("j").value()


def test_a_misplaced_word_is_shown_with_its_place():
    with pytest.raises(ValueError, match="'i' is out of place at character 3"):
        Expression.parse("2 i")


adapter = TypeAdapter(Selection)


@pytest.mark.parametrize(
    ("selection", "n", "expected"),
    [
        ("all", 3, [1, 2, 3]),
        (3, 5, [3]),
        ("3", 5, [3]),
        ("1..N/2", 5, [1, 2]),
        ("N/2+1..N", 5, [3, 4, 5]),
        ("1,4,7..9", 9, [1, 4, 7, 8, 9]),
        ([1, 4], 4, [1, 4]),
        ((1, 4), 4, [1, 4]),
        (["1..2", 4], 4, [1, 2, 4]),
        ("N", 6, [6]),
        ("4, 1", 4, [4, 1]),
        ("1..3, 2..4", 4, [1, 2, 3, 4]),
        ("1 .. slow", 4, [1, 2, 3]),
        ("N/2+1..N", 1, [1]),
    ],
)
def test_members_in_the_order_written_each_once(selection, n, expected):
    assert members(adapter.validate_python(selection), {"N": n, "slow": 3}) == expected


@given(st.integers(1, 200))
def test_the_two_halves_make_the_whole(n):
    first = members("1..N/2", {"N": n}) if n > 1 else []
    assert first + members("N/2+1..N", {"N": n}) == members("all", {"N": n})


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (0, "'0' is 0, outside the clients; allowed: 1..4"),
        (5, "outside the clients; allowed: 1..4"),
        ("3..5", r"'3..5' is 3..5, outside"),
        ("0-1", "outside"),
        ("3..2", "selects nobody"),
        ("1..N/5", "selects nobody: it is 1..0 with N = 4"),
        ("0.6*N", "whole numbers"),
        ("1..i", "symbol 'i' in|symbol 'i' is not known; allowed: N, slow"),
        ("1..m", "symbol 'm'"),
        ("1..k", "symbol 'k'"),
        ("N/0", "divides by zero"),
    ],
)
def test_members_outside_or_nobody_are_refused(selection, says):
    with pytest.raises(ValueError, match=says):
        members(selection, {"N": 4, "slow": 3, "i": 1, "m": 1})


@pytest.mark.parametrize(
    "selection",
    [
        "",
        "1,,2",
        ",",
        [],
        [[1]],
        "1..",
        "..3",
        "1..2..3",
        "f(1)",
        "all, 1",
        ["all", 1],
        None,
        True,
        [True],
        1.5,
        {"a": 1},
    ],
)
def test_misspelt_selections_are_refused_by_the_field(selection):
    with pytest.raises(ValidationError, match=r"allowed: ('all'|.*ranges)"):
        adapter.validate_python(selection)


@given(st.text(max_size=20))
def test_garbage_as_a_selection_raises_nothing_but_value_errors(text):
    with suppress(ValueError):
        assert set(members(text, {"N": 4})) <= {1, 2, 3, 4}


@pytest.mark.parametrize("selection", ["all", 3, "N/2+1..N", (1, "4..6")])
def test_the_field_keeps_what_was_written(selection):
    assert adapter.validate_python(selection) == selection
    assert adapter.validate_json(adapter.dump_json(selection)) == selection
