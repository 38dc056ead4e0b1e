"""What is tried at each change leaves out no value and no pair, and what is left to CI runs there."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from thorough import call_most_slow, paired, turned

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
    assert re.search(r"^pytest -n 2 --slow -m slow$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


class Case:
    """What ``call_most_slow`` sees of a test's case."""

    def __init__(self, nodeid: str, few: int | None, **params: object) -> None:
        self.nodeid, self.slow, self.callspec = nodeid, False, self
        self.few, self.params = None if few is None else pytest.mark.sampled(few).mark, params

    def get_closest_marker(self, name: str) -> object:
        return self.few if name == "sampled" else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        assert mark.name == "slow"
        self.slow = True


def test_few_cases_run_at_each_change() -> None:
    cases: list[Any] = [Case(f"a[{number}]", 3, number=number) for number in range(10)]
    cases += [Case(f"b[{number}]", 7) for number in range(2)] + [Case(f"c[{number}]", None) for number in range(4)]
    call_most_slow(cases)
    kept = [case.nodeid[0] for case in cases if not case.slow]
    assert kept == [*"aaabbcccc"]


def test_every_value_of_every_parameter_occurs_in_few_cases() -> None:
    kinds, worlds = [f"kind {number}" for number in range(12)], ["idle", "busy", "broken"]
    cases: list[Any] = [Case(f"a[{a}-{b}]", 12, kind=a, world=b) for a, b in product(kinds, worlds)]
    call_most_slow(cases)
    few = [case.params for case in cases if not case.slow]
    assert {case["kind"] for case in few} == {*kinds}
    assert Counter(case["world"] for case in few) == dict.fromkeys(worlds, 4)
