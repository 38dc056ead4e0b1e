"""Journals come back to the last bit."""

import math

from hypothesis import given, strategies as st

from vflsim.simulation.checkpoints.snapshot import Entry, packed, unpacked

SCORES = st.fixed_dictionaries({"loss": st.floats(), "accuracy": st.floats()}) | st.fixed_dictionaries(
    {"r2": st.floats()}
)


@given(st.lists(st.floats() | SCORES))
def test_a_journal_comes_back_in_order_and_to_the_bit(journal: list[Entry]) -> None:
    assert repr(unpacked(*packed(journal))) == repr(journal)


def test_what_is_alike_takes_one_line() -> None:
    runs, numbers = packed([{"loss": 1.0}, {"loss": 2.0}, *[0.5] * 1000, math.nan])
    assert runs == [(2, ["loss"]), (1001, None)]
    assert numbers.shape == (1003,)
