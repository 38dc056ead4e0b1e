"""Random worlds over all kinds of protocols: both paths write the same bytes, or the vectorised one cannot decide."""

from collections import Counter
from typing import Any

import pytest
from both_paths import assert_same_bytes
from recurrent_worlds import metered, world
from thorough import is_thorough

from vflsim.protocols import PROTOCOLS
from vflsim.simulation.vectorised import UndecidedError, obstacles

WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST = {world: 0.8, metered: 0.5}
"""The share of a group of worlds in which arrays decide: few have ties that only the event path can tell apart."""
CASES = [
    *((world, first) for first in range(0, THOROUGH if is_thorough() else WORLDS, GROUP)),
    *((metered, first) for first in range(0, THOROUGH // 2 if is_thorough() else 40, GROUP)),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("drawn", "first"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_random_worlds_have_the_same_bytes_on_both_paths(drawn: Any, first: int) -> None:
    told = Counter[str]()
    for number in range(first, first + GROUP):
        scenario = drawn(number)
        if drawn is metered and obstacles(scenario, "it"):
            told["refused"] += 1
            continue
        try:
            outcome = assert_same_bytes(scenario, number)
        except UndecidedError as error:
            told[str(error)] += 1
        except AssertionError as difference:
            raise AssertionError(f"{drawn.__name__}({number}) differs") from difference
        else:
            told["same" if drawn is world or "energy_by_party" in outcome.extra else "silent"] += 1
    assert told["same"] >= FEWEST[drawn] * GROUP, told


def test_the_worlds_have_every_kind() -> None:
    drawn = {world(number).protocols["it"].protocol.kind for number in range(WORLDS)}
    assert drawn == {each.model_fields["kind"].default for each in PROTOCOLS}
