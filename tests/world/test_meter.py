"""The energy of spans that are noted as they begin and end, whenever they are settled."""

from __future__ import annotations

from array import array

import pytest

from vflsim.books.spans import COMPUTE, DOWN, RADIO
from vflsim.timing.party import Power
from vflsim.world import record as meter
from vflsim.world.record import Meter

POWER = Power(idle=1.0, compute=3.0, radio=2.0, per_byte=0.5)


def noted(parties: dict[int, Power]) -> Meter:
    """Two rounds of party 1, which goes down in the second, and messages of party 2 to it."""
    made = Meter(parties)
    made.begin(COMPUTE, 0.0, 1)
    made.end(COMPUTE, 2.0, 1)
    made.end_round(2.0)
    made.begin(RADIO, 2.0, 2, 1)  # it goes on as the round of this instant has ended
    made.end(RADIO, 3.0, 2, 1, amount=4)
    made.begin(DOWN, 3.0, 1)
    made.end_round(4.0)
    made.end(DOWN, 5.0, 1)
    return made


def test_rounds_and_moments_have_the_energy_of_what_was_noted_before() -> None:
    made = noted({1: POWER})
    assert made.settle(6.0, 7.0) == [12.0, 13.0]
    assert made.rounds == array("d", [6.0, 6 + 1 + 2 + 2])
    assert made.settle(8.0) == [14.0]
    both = noted({1: POWER, 2: POWER})
    assert both.settle(6.0) == [12 + 6 + 2 + 2]


def test_a_full_buffer_is_settled_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = noted({1: POWER})
    monkeypatch.setattr(meter, "_FULL", 0)
    often = noted({1: POWER})
    assert often.rounds == array("d", [6.0, 11.0])
    assert (often.settle(8.0), often.by_party(8.0)) == (whole.settle(8.0), whole.by_party(8.0))


def test_parties_that_draw_nothing_are_not_noted() -> None:
    made = noted({3: POWER})
    assert made.settle(6.0) == [6.0]
    assert made.by_party(6.0)["seconds"] == [6.0, 0.0, 0.0]
    assert not made.counts_flops(1)
    assert not made.counts_flops(3)
