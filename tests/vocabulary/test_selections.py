"""Selections of clients."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from vflsim.vocabulary.selections import Selection, members

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
def test_garbage_raises_nothing_but_value_errors(text):
    with suppress(ValueError):
        assert set(members(text, {"N": 4})) <= {1, 2, 3, 4}


@pytest.mark.parametrize("selection", ["all", 3, "N/2+1..N", (1, "4..6")])
def test_the_field_keeps_what_was_written(selection):
    assert adapter.validate_python(selection) == selection
    assert adapter.validate_json(adapter.dump_json(selection)) == selection
