"""Estimates before a run: how far the trial goes."""

from __future__ import annotations

import pytest
from tiny_worlds import data_of, tiny

from vflsim.studies.checks import expected
from vflsim.studies.checks.expected import FEWEST_STEPS, TRIAL_STEPS, expectation
from vflsim.studies.checks.expected_table import expectation_table


@pytest.mark.parametrize(
    ("messages", "steps"),
    # 4 clients: 8 messages a round, and in a coded round 12 shares besides
    [(10**6, [TRIAL_STEPS, TRIAL_STEPS]), (400, [50, 20]), (1, [FEWEST_STEPS, FEWEST_STEPS])],
)
def test_a_trial_ends_after_so_many_messages(messages: int, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "TRIAL_MESSAGES", messages)
    scenario = tiny({"wait": {"kind": "synchronous"}, "coded": {"kind": "fedvs", "K": 1, "T": 1}})
    assert [expectation(scenario, name, data_of(scenario)).steps for name in scenario.protocols] == steps


@pytest.mark.parametrize(
    ("every", "stop", "told"),
    [
        (
            "40 rounds",
            {"rounds": 200},
            "synchronous: the first after some 40 rounds, and about 5 in all; finer: `evaluate",
        ),
        ("120 rounds", {"rounds": 6000}, "synchronous: the first after some 120 rounds, and about 50 in all; finer:"),
        ("10 s", {"rounds": 200}, "synchronous: the first after some"),
        ("10 rounds", {"rounds": 200}, ""),
        ("1 rounds", {"rounds": 5}, ""),  # no grid is finer
    ],
)
def test_check_says_where_targets_are_evaluated_seldom(every: str, stop: dict[str, int], told: str) -> None:
    target = {"test_accuracy": 0.5}
    scenario = tiny("synchronous", evaluate={"every": every}, stop=stop, target=target)
    notes = expectation_table(scenario, [expectation(scenario, "synchronous", data_of(scenario), steps=20)]).notes
    seldom = [note for note in notes if note.startswith("Evaluated seldom")]
    assert len(seldom) == bool(told)
    assert told in "".join(seldom)
    without = tiny("synchronous", evaluate={"every": every}, stop=stop)
    notes = expectation_table(without, [expectation(without, "synchronous", data_of(without), steps=20)]).notes
    assert not any(note.startswith("Evaluated seldom") for note in notes)
