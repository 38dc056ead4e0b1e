"""Estimates before a run: how far the trial goes."""

from __future__ import annotations

import pytest
from tiny_worlds import data_of, tiny

from vflsim.studies.checks import expected
from vflsim.studies.checks.expected import FEWEST_STEPS, TRIAL_STEPS, expectation


@pytest.mark.parametrize(
    ("messages", "steps"),
    # 4 clients: 8 messages a round, and in a coded round 12 shares besides
    [(10**6, [TRIAL_STEPS, TRIAL_STEPS]), (400, [50, 20]), (1, [FEWEST_STEPS, FEWEST_STEPS])],
)
def test_a_trial_ends_after_so_many_messages(messages: int, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "TRIAL_MESSAGES", messages)
    scenario = tiny({"wait": {"kind": "synchronous"}, "coded": {"kind": "fedvs", "K": 1, "T": 1}})
    assert [expectation(scenario, name, data_of(scenario)).steps for name in scenario.protocols] == steps
