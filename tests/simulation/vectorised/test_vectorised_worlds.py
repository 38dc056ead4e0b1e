"""Random worlds over all kinds of protocols: both paths write the same bytes, or the vectorised one cannot decide."""

from collections import Counter

import pytest
from both_paths import assert_same_bytes
from recurrent_worlds import world
from thorough import is_thorough

from vflsim.protocols import PROTOCOLS
from vflsim.simulation.vectorised import UndecidedError

WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST_DECIDED = 0.8
"""Of a group of worlds: few have ties that only the event path can tell apart."""


@pytest.mark.parametrize("first", range(0, THOROUGH if is_thorough() else WORLDS, GROUP))
def test_random_worlds_have_the_same_bytes_on_both_paths(first: int) -> None:
    undecided = Counter[str]()
    for number in range(first, first + GROUP):
        try:
            assert_same_bytes(world(number), number)
        except UndecidedError as error:
            undecided[str(error)] += 1
        except AssertionError as difference:
            raise AssertionError(f"world {number} differs") from difference
    assert undecided.total() <= (1 - FEWEST_DECIDED) * GROUP, undecided


def test_the_worlds_have_every_kind() -> None:
    drawn = {world(number).protocols["it"].protocol.kind for number in range(WORLDS)}
    assert drawn == {each.model_fields["kind"].default for each in PROTOCOLS}
