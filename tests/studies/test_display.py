"""The live display of a sweep: one estimate of the time that is left, for all points."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console
from tiny_worlds import raw

from vflsim.scenario import load
from vflsim.simulation.reporter import Progress
from vflsim.studies.display import Display
from vflsim.studies.plan import axes_of, planned
from vflsim.studies.runs.progress import Remaining, Report, StudyRun
from vflsim.studies.sweep import Step

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


def test_many_runs_of_a_protocol_have_one_line_with_the_least_far_of_them() -> None:
    display = Display(Console(file=StringIO()), load(raw(BOTH, seeds=[*range(8)])))
    assert display.alone is not None
    fast = StudyRun("fast", 0, 9, 16)
    display.alone.began(fast)
    for seed in range(4):
        display.alone.began(run := StudyRun("wait", seed, seed + 1, 16))
        display.alone.progressed(run, Progress(5.0 - seed, 20 - seed, 0))
    text = [str(line) for line in display.alone.lines()]
    assert text[0] == "starting fast, seed 0"
    assert text[1].startswith("timing wait, seed 0  5 s  round 20")
    assert len(text) == 5
    display.alone.began(run := StudyRun("wait", 4, 5, 16))
    display.alone.progressed(run, Progress(3.0, 18, 0))
    assert [str(line).strip() for line in display.alone.lines()] == [
        "starting fast, seed 0", "timing wait, 5 seeds  2 s  round 17"
    ]  # fmt: skip
