"""What is tried at each change leaves out no value and no pair, and what is left to CI runs there."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path

import pytest
from thorough import paired, turned

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("sizes", [(5, 2, 2), (3, 3, 3, 3), (2, 9, 1, 4), (4, 6), (7,), (2, 2, 2, 2, 2, 2)])
def test_any_two_values_of_two_parameters_meet(sizes: tuple[int, ...]) -> None:
    rows = paired(sizes) if len(sizes) > 1 else turned(sizes)
    assert len(rows) == len({*rows})
    for one, other in combinations(range(len(sizes)), 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == {*product(range(sizes[one]), range(sizes[other]))}
    largest = sorted(sizes)[-2:]
    assert len(rows) <= 2 * largest[0] * largest[-1]


@pytest.mark.parametrize("sizes", [(5, 2, 2), (3, 3, 3, 3), (2, 9, 1, 4), (4, 6), (7,), (12, 4, 6)])
def test_values_that_take_turns_all_occur(sizes: tuple[int, ...]) -> None:
    rows = turned(sizes)
    assert len(rows) == len({*rows}) == max(sizes)
    for place, size in enumerate(sizes):
        assert {row[place] for row in rows} == {*range(size)}


def test_parameters_of_one_size_take_turns_mixed() -> None:
    assert turned((4, 2, 2)) == [(0, 0, 0), (1, 1, 1), (2, 1, 0), (3, 0, 1)]


def test_the_slow_tests_run_in_ci() -> None:
    assert re.search(r"^pytest -n 2 --thorough -m slow$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
