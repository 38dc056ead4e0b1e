"""How much the tests try: little at each change, more with ``pytest --thorough``."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from zlib import crc32

import pytest
from hypothesis import settings

HELP = "try 200 or more examples of each property, every combination of parameters, and run the slow tests"
SLOW = "slow tests are left out: they run with --slow, as `.ci/run` does with all of them, and with --thorough"
FEW, MANY = 15, 200
"""Examples of a property at each change at most, and with ``--thorough`` at least."""

for _name, _count in (("quick", FEW), ("thorough", MANY)):
    settings.register_profile(_name, max_examples=_count, deadline=None)  # the machine decides how long one takes


def begin(thorough: bool) -> None:
    """Load the profile of hypothesis, before tests are imported."""
    settings.load_profile("thorough" if thorough else "quick")


def is_thorough() -> bool:
    return settings.get_current_profile_name() == "thorough"


def examples(wanted: int) -> int:
    """How many examples a property gets that was written for so many: not above FEW, or not below MANY."""
    return max(wanted, MANY) if is_thorough() else min(wanted, FEW)


def call_most_slow(items: Iterable[pytest.Item]) -> None:
    """Mark as slow all cases of tests that are ``sampled(n)``, except n, in which as many values as can be occur."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for own in cases.values():
        marker = own[0].get_closest_marker("sampled")
        assert marker is not None
        for item in _without_few(own, marker.args[0]):
            item.add_marker(pytest.mark.slow)


def _without_few(cases: Iterable[pytest.Item], few: int) -> list[pytest.Item]:
    """Leave out so many that are not slow anyway: each time the case with most values that have not occurred.

    Of several, the one whose values have occurred least; of these, the first by the hash of its name.
    """
    rest = [case for case in cases if not case.get_closest_marker("slow")]
    rest.sort(key=lambda case: crc32(case.nodeid.encode()))
    occurred: Counter[tuple[str, int]] = Counter()

    def seen(case: pytest.Item) -> tuple[int, int]:
        counts = [occurred[value] for value in _values(case)]
        return sum(map(bool, counts)), sum(counts)

    for _ in range(min(few, len(rest))):
        chosen = min(rest, key=seen)
        occurred.update(_values(chosen))
        rest.remove(chosen)
    return rest


def _values(case: pytest.Item) -> Iterable[tuple[str, int]]:
    """Return the parameters of a case, each with the identity of its value: cases share the values of a list."""
    parameters: Mapping[str, object] = case.callspec.params  # type: ignore[attr-defined]
    return [(name, id(value)) for name, value in parameters.items()]


Values = Sequence[object] | Mapping[str, object]
"""The values of a parameter; of a mapping, its keys name the cases."""


def every_pair(**parameters: Values) -> pytest.MarkDecorator:
    """Parametrise with few combinations in which any two values of two parameters meet; ``--thorough``: with all."""
    return _parametrised(parameters, paired)


def in_turn(**parameters: Values) -> pytest.MarkDecorator:
    """Parametrise with as many combinations as the longest parameter has values; ``--thorough``: with all.

    The others take turns, so that every value occurs.
    """
    return _parametrised(parameters, turned)


def paired(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return rows of one index per parameter of these sizes, in which any two indices of two parameters meet.

    Greedy: each row begins with a pair that has not met, and takes what meets most of the others for the first time.
    """
    places = [*combinations(range(len(sizes)), 2)]
    left = {(i, a, j, b) for i, j in places for a, b in product(range(sizes[i]), range(sizes[j]))}
    used = [[0] * size for size in sizes]
    rows = []
    while left:
        i, a, j, b = min(left)
        row = {i: a, j: b}
        for place in (k for k in range(len(sizes)) if k not in row):
            gains = [
                (sum(_met(row, place, value, other) in left for other in row), -used[place][value], -value)
                for value in range(sizes[place])
            ]
            row[place] = -max(gains)[2]
        rows.append(tuple(row[place] for place in range(len(sizes))))
        for place, value in row.items():
            used[place][value] += 1
        left -= {(i, row[i], j, row[j]) for i, j in places}
    return sorted(rows)


def _met(row: Mapping[int, int], place: int, value: int, other: int) -> tuple[int, int, int, int]:
    one, two = sorted([(place, value), (other, row[other])])
    return (*one, *two)


def turned(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return as many rows as the largest of ``sizes``; each index of each parameter occurs in one.

    A parameter begins again one index later each time round, or two, or more: so parameters of one size meet mixed.
    """
    return [tuple((row + step * (row // size)) % size for step, size in enumerate(sizes)) for row in range(max(sizes))]


def _parametrised(
    parameters: Mapping[str, Values], design: Callable[[Sequence[int]], list[tuple[int, ...]]]
) -> pytest.MarkDecorator:
    values = [[*each.values()] if isinstance(each, Mapping) else [*each] for each in parameters.values()]
    names = [[*map(_name, each)] for each in parameters.values()]  # of a mapping: its keys
    sizes = [*map(len, values)]
    rows = [*product(*map(range, sizes))] if is_thorough() else design(sizes)
    cases = [
        pytest.param(
            *(of[index] for of, index in zip(values, row, strict=True)),
            id="-".join(
                of[index] if of[index] else f"{name}{index}"
                for name, of, index in zip(parameters, names, row, strict=True)
            ),
        )
        for row in rows
    ]
    return pytest.mark.parametrize(",".join(parameters), cases)


def _name(value: object) -> str:
    return str(value) if isinstance(value, str | int | float | None) else ""
