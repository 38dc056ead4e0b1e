"""Which stop rules let a run continue from a place that it passed under others."""

from typing import Any

import pytest

from vflsim.stopping.rules import Stop
from vflsim.studies.runs.stop_compatibility import ends_alike, hindrance

PLACE = {"time": 10.0, "rounds": 5, "updates": 20, "wall_clock": 1.0}
TARGET = {"test_accuracy": 0.8, "for": "3 evaluations"}


def rules(**said: Any) -> dict[str, Any]:
    return Stop.model_validate(said).plain()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"time": 11}, {"time": 12}),
        ({"time": 11}, {"rounds": 6}),
        ({"rounds": 9}, {"rounds": 6}),  # not yet reached
        ({"rounds": 9, "wall_clock": 2}, {"updates": 21, "wall_clock": 3}),
        ({"epochs": 2}, {"epochs": 2}),
        ({"epochs": 2}, {"epochs": 3}),
        ({"time": 11, "target": TARGET}, {"time": 11}),
        ({"target": TARGET}, {"target": {**TARGET, "test_accuracy": 0.9}}),
        ({"target": {**TARGET, "test_loss": 1}}, {"target": {"test_loss": 0.5, "for": "3 evaluations"}}),
        ({"precision": "2 %"}, {"precision": "1 %"}),
        ({"time": 11, "epsilon": 2}, {"time": 11, "epsilon": 3}),
    ],
)
def test_a_later_end_lets_a_run_continue(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert hindrance(PLACE, rules(**before), rules(**now)) == ""


@pytest.mark.parametrize(
    ("before", "now", "rule"),
    [
        ({"time": 11}, {"time": 10}, "time"),
        ({"time": 11}, {"rounds": 5}, "rounds"),
        ({"time": 11}, {"updates": 20}, "updates"),
        ({"time": 11}, {"wall_clock": 0.5}, "wall_clock"),
        ({"epochs": 2}, {"epochs": 1.5}, "epochs"),
        ({"time": 11}, {"time": 12, "epochs": 9}, "epochs"),
        ({"time": 11}, {"time": 12, "target": TARGET}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "test_accuracy": 0.7}}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "for": "2 evaluations"}}, "target"),
        ({"target": TARGET}, {"target": {**TARGET, "test_loss": 1}}, "target"),
        ({"precision": "2 %"}, {"precision": "3 %"}, "precision"),
        ({"precision": "2 %"}, {"precision": {"round_duration": 0.01, "confidence": 0.9}}, "precision"),
        ({"epsilon": 2}, {"epsilon": 1}, "epsilon"),
    ],
)
def test_a_rule_that_may_have_ended_it_does_not(before: dict[str, Any], now: dict[str, Any], rule: str) -> None:
    assert hindrance(PLACE, rules(**before), rules(**now)) == rule


@pytest.mark.parametrize(
    ("before", "now", "alike"),
    [
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 30}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 11}, True),
        ({"rounds": 5, "time": 20}, {"rounds": 5, "time": 10}, False),  # two rules at one instant
        ({"rounds": 5, "time": 20}, {"rounds": 6, "time": 20}, False),
        ({"rounds": 5, "time": 20}, {"time": 20}, False),
        ({"rounds": 5}, {"rounds": 5, "epochs": 1}, False),
    ],
)
def test_a_run_that_one_rule_ended_ends_alike_while_the_others_are_later(
    before: dict[str, Any], now: dict[str, Any], alike: bool
) -> None:
    assert ends_alike("rounds", PLACE, rules(**before), rules(**now)) is alike
