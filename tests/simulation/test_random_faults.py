"""Scenarios with faults drawn at random: each run ends in a sound result or in an error that explains itself.

``VFLSIM_FAULTS=1000 pytest tests/simulation/test_random_faults.py`` runs a thousand of them.
"""

import os

import pytest
from fault_worlds import FEW_CRASHES, checked
from pandas.testing import assert_frame_equal
from thorough import is_thorough
from tiny_worlds import events, rounds

from vflsim.world import outages

SCENARIOS = int(os.environ.get("VFLSIM_FAULTS", "60" if is_thorough() else "20"))
TRAINED = 5
"""Every so many scenarios are trained, too."""


KINDS = ["", "fedvs", "local", "easter", "blinded", "overlapping"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS, ids=["any", *KINDS[1:]])
@pytest.mark.parametrize("first", range(0, SCENARIOS, 10))
def test_every_run_with_faults_ends_in_a_sound_result_or_a_clear_error(first: int, kind: str, monkeypatch) -> None:
    monkeypatch.setattr(outages, "CRASHES_WITHOUT_A_STEP", FEW_CRASHES)
    for seed in range(first, min(first + (5 if kind else 10), SCENARIOS)):
        outcome = checked(seed, kind=kind)
        if seed % TRAINED == 0:
            trained = checked(seed, timing_only=False, kind=kind)
            assert str(trained.error) == str(outcome.error)
            assert_frame_equal(events(trained), events(outcome))
            assert_frame_equal(rounds(trained), rounds(outcome))
