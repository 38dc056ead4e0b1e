"""The live display of a sweep: one estimate of the time that is left, for all points."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console
from tiny_worlds import raw

from vflsim.scenario.load import as_scenario
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.sweeps.plan import axes_of, planned
from vflsim.studies.sweeps.sweep import Step
from vflsim.studies.terminal.display import Display, StudyDisplay
from vflsim.studies.time_left import Remaining

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


def ended(seconds: float) -> Report:
    return cast(Report, SimpleNamespace(error=None, info=SimpleNamespace(wall_clock_s=seconds)))


def test_the_time_left_is_that_of_all_points_and_shared_runs_take_none() -> None:
    world: dict[str, Any] = raw(BOTH, seeds=[0, 1])
    plan = planned(world, axes_of(world, {"fast.t": [1, 3]}))
    assert plan.own_runs == ({"wait": 2, "fast": 2}, {"fast": 2})
    steps = [
        Step(number, 2, f"t = {point.values[0]}", point.scenario, own)
        for number, (point, own) in enumerate(zip(plan.points, plan.own_runs, strict=True), start=1)
    ]
    display = Display(Console(file=StringIO()))
    display.planned(steps)
    display.remaining = Remaining({"wait": 2, "fast": 4}, lambda: 0.0)
    first, fast = display.watching(steps[0]), StudyRun("fast", 0, 1, 4)
    assert display._left() == ""
    wait = StudyRun("wait", 0, 1, 4)
    first.began(wait)
    first.ended(wait, ended(10.0))
    assert display._left().strip() == "50 s left"  # one run after the other: wait, fast, fast, fast, fast
    second = display.watching(steps[1])
    first.began(fast)
    second.began(fast)  # the same protocol and seed at another point
    assert display._left().strip() == "30 s left"  # two at a time, three to begin
    second.ended(fast, ended(10.0))
    second.ended(wait, ended(10.0))  # shared
    assert display._left().strip() == "40 s left"


class Predictions:
    """Predicts so many seconds for every run, and notes what was asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, list[tuple[list[str], float]]()

    def __call__(self, protocols: Sequence[str], all_s: float) -> dict[str, float]:
        self.asked.append(([*protocols], all_s))
        return dict.fromkeys(protocols, self.seconds)


class InTerminal(Display):
    """Shows nothing, and is seen."""

    tells_time_left = True


def of_one_study(
    seconds: float, seeds: int = 2, kind: type[Display] = InTerminal
) -> tuple[Display, StudyDisplay, Predictions]:
    world = as_scenario(raw(BOTH, seeds=[*range(seeds)]))
    display, predictions = kind(Console(file=StringIO()), world), Predictions(seconds)
    assert display.alone is not None
    display.alone.predictable(predictions)
    return display, display.alone, predictions


def test_protocols_of_a_long_study_are_measured_as_it_begins() -> None:
    display, study, predictions = of_one_study(20.0)
    study.began(StudyRun("wait", 0, 1, 4))
    study.began(StudyRun("fast", 0, 2, 4))
    assert predictions.asked == [(["wait"], 0.3), (["fast"], 2.0)]
    assert display.seconds_left is not None


def test_a_short_study_measures_its_first_protocol_alone() -> None:
    _, study, predictions = of_one_study(2.0)
    study.began(StudyRun("wait", 0, 1, 4))
    assert predictions.asked == [(["wait"], 0.3)]


def test_nothing_is_measured_where_nobody_sees_the_time_left() -> None:
    _, study, predictions = of_one_study(20.0, kind=Display)
    study.began(StudyRun("wait", 0, 1, 4))
    assert predictions.asked == []


def test_with_four_seeds_the_first_shows_how_long_protocols_take() -> None:
    _, study, predictions = of_one_study(20.0, seeds=4)
    study.began(StudyRun("wait", 0, 1, 8))
    assert predictions.asked == []


def test_a_study_that_turns_out_to_be_long_measures_what_is_left() -> None:
    world = raw({**BOTH, "own": {"kind": "asynchronous"}})
    display, predictions = InTerminal(Console(file=StringIO()), as_scenario(world)), Predictions(1.0)
    study = display.alone
    assert study is not None
    study.predictable(predictions)
    wait = StudyRun("wait", 0, 1, 3)
    study.began(wait)
    display.remaining.ended(wait, 40.0, point=1)
    study.began(StudyRun("fast", 0, 2, 3))
    assert predictions.asked == [(["wait"], 0.3), (["fast", "own"], 2.0)]


def test_points_of_a_sweep_are_not_measured() -> None:
    display, predictions = InTerminal(Console(file=StringIO())), Predictions(100.0)
    step = Step(1, 1, "t = 1", as_scenario(raw(BOTH)), {"wait": 1, "fast": 1})
    display.planned([step])
    point = display.watching(step)
    point.predictable(predictions)
    point.began(StudyRun("wait", 0, 1, 2))
    assert predictions.asked == []
