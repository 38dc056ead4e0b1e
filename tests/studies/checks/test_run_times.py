"""Predictions of how long runs take, measured on this machine: which there are, not how good they are."""

from __future__ import annotations

import math

from tiny_worlds import raw

from vflsim.scenario.data import ScenarioData
from vflsim.scenario.load import as_scenario
from vflsim.studies.checks.run_times import predicted_s


def test_runs_are_predicted_and_protocols_that_fail_are_left_out() -> None:
    gone = {"kind": "failure", "at": "0.1 ms", "repair": "never", "interrupted": "resumed"}
    kinds = {"wait": {"kind": "synchronous"}, "first": {"kind": "t_synchronous", "t": 2}}
    world = as_scenario(
        raw(kinds, timing={"clients": [{"select": "all", "compute": "2 ms"}, {"select": 4, "availability": gone}]})
    )
    found = predicted_s(world, ScenarioData(world), ["wait", "first"], all_s=0.1)
    assert found.keys() == {"first"}
    assert 0 < found["first"] < math.inf


def test_a_limit_of_real_time_bounds_the_prediction() -> None:
    world = as_scenario(raw({"wait": {"kind": "synchronous"}}, stop={"wall_clock": 1e-6, "rounds": 1000}))
    assert predicted_s(world, ScenarioData(world), ["wait"], all_s=0.1) == {"wait": 1e-6}
