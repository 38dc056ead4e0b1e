"""Stop rules: levels that are shares may be written in per cent."""

import pytest

from vflsim.scenario import load
from vflsim.stopping import Stop
from vflsim.stopping.end_rule import Tally, share_of
from vflsim.vocabulary.metrics import COLUMNS


@pytest.mark.parametrize(
    ("level", "meant"), [("80 %", 0.8), ("80%", 0.8), (0.8, 0.8), ("4/5", 0.8), ("99.5 %", 0.995), ("100 %", 1.0)]
)
def test_a_target_for_a_share_may_be_in_per_cent(level: object, meant: float, base: str) -> None:
    scenario = load(base, {"stop.target": {"test_accuracy": level}})
    assert scenario.stop.target is not None
    assert scenario.stop.target.values == {"test_accuracy": meant}


def test_targets_of_amounts_stay_numbers(base: str) -> None:
    target = load(base, {"stop.target": {"test_loss": 80}}).stop.target
    assert target is not None
    assert target.values == {"test_loss": 80.0}


@pytest.mark.parametrize("metric", [name for name in COLUMNS if name.endswith(("accuracy", "auc"))])
def test_no_run_is_sent_after_a_share_above_one(metric: str, base: str) -> None:
    with pytest.raises(Exception, match="80 is out of range") as error:
        load(base, {"stop.target": {metric: 80}})
    assert type(error.value).__name__ == "ScenarioError"


def test_the_share_of_a_run_is_that_of_the_nearest_end() -> None:
    stop = Stop(time=10.0, rounds=4, epsilon=1.0)
    assert share_of(stop.each(), Tally(time_s=2.0, rounds=1, updates=7)) == 0.25
    assert share_of(stop.each(), Tally(time_s=20.0, rounds=1, updates=7)) == 1.0
    assert share_of(Stop(epsilon=1.0).each(), Tally(time_s=2.0, rounds=1)) == 0.0
