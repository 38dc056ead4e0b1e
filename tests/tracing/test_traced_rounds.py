"""Arrays made from a trace leave the bytes that events leave: for rounds of any script, in any world."""

import pytest
from both_paths import assert_same_bytes, quick
from scripted_rounds import scripted_world
from thorough import is_thorough

from vflsim.simulation.vectorised import UndecidedError

WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST_DECIDED = 0.5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, THOROUGH if is_thorough() else WORLDS, GROUP))
def test_both_paths_leave_the_same_bytes(first: int) -> None:
    decided = 0
    for number in range(first, first + GROUP):
        try:
            assert_same_bytes(quick(**scripted_world(number)))
        except UndecidedError:
            continue
        except AssertionError as error:
            raise AssertionError(f"world {number}: {scripted_world(number)}") from error
        decided += 1
    assert decided >= FEWEST_DECIDED * GROUP


def test_the_server_takes_a_draw_for_each_of_its_operations_in_a_turn() -> None:
    drawn = {"kind": "exponential", "mean": "2 ms"}
    timing = {"server": {"compute": drawn}, "clients": {"select": "all", "compute": drawn}}
    protocol = {"kind": "module", "path": "twice_in_turn:TwiceInTurn", "local_steps": 1}
    for record in ("rounds", "events"):
        assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 12}, record=record))
