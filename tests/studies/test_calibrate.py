"""Wall-clock predictions: exact arithmetic on measured times, by clocks of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import data_of, tiny

from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario.models import Scenario
from vflsim.simulation.conductor import Progress
from vflsim.simulation.run import run_protocol
from vflsim.studies import calibrate
from vflsim.studies.calibrate import calibrated, study_s
from vflsim.studies.expected import expectation
from vflsim.studies.expected_table import expectation_table

START_S, ROUND_S, ROW_S, ONCE_S = 0.25, 0.01, 0.0002, 0.5
FEW_ROWS = 64


class Machine:
    """A clock, and runs of ``rounds`` rounds that take exact times by it; the first round has one-off work."""

    def __init__(self, rounds: int) -> None:
        self.now, self.rounds, self.every = 100.0, rounds, list[float]()

    def clock(self) -> float:
        return self.now

    def run(
        self, scenario: Scenario, name: str, _: int, data: LoadedData, *, report: Callable[[Progress], None], **__: Any
    ) -> None:
        every = scenario.evaluate_of(name).every
        assert every.unit == "rounds"
        self.every.append(every.amount)
        evaluation_s = ROW_S * len(data.labels["test"])
        self.now += START_S + evaluation_s
        report(Progress(0.0, 0, 0, {"time_s": 0.0}))
        self.now += ONCE_S
        for rounds in range(1, self.rounds + 1):
            self.now += ROUND_S
            if rounds % every.amount == 0:
                self.now += evaluation_s
                report(Progress(1.0 * rounds, rounds, rounds, {"time_s": 1.0 * rounds}))


@pytest.mark.parametrize(("rounds", "every"), [(1000, 8), (30, 8), (1000, 1)])
def test_the_measured_seconds_add_up_to_those_of_the_run(
    rounds: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(rounds)
    monkeypatch.setattr(calibrate, "run_protocol", machine.run)
    scenario = tiny("synchronous", evaluate={"every": f"{every} rounds"}, stop={"rounds": rounds})
    data = data_of(scenario)
    expected = expectation(scenario, "synchronous", data, steps=5)
    speed = calibrated(scenario, "synchronous", data, clock=machine.clock, budget_s=3.0)
    assert machine.every == [1, every, 1]
    assert speed.memory_bytes == expected.size.bytes
    rows = len(data.labels["test"])
    assert speed.seconds_per_evaluation == pytest.approx(ROW_S * (rows - FEW_ROWS))
    assert speed.seconds_per_round == pytest.approx(ROUND_S + ROW_S * FEW_ROWS / every)
    initial = START_S + ROW_S * rows + ONCE_S
    assert speed.run_s(expected) == pytest.approx(initial + rounds * (ROUND_S + ROW_S * rows / every))


def test_a_trial_ends_with_its_budget_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls, reached = [0.0], list[int]()

    def clock() -> float:  # a tenth of a second from row to row
        calls[0] += 0.1
        return calls[0]

    def watched(*args: Any, report: Callable[[Progress], None], **rest: Any) -> None:
        def look(progress: Progress) -> None:
            reached.append(progress.rounds)
            report(progress)

        run_protocol(*args, report=look, **rest)

    monkeypatch.setattr(calibrate, "run_protocol", watched)
    scenario = tiny("asynchronous", stop={"time": "1000 s"}, evaluate={"every": "3 rounds"})
    speed = calibrated(scenario, "asynchronous", data_of(scenario), clock=clock, budget_s=1.5)
    assert max(reached) <= 30  # 1 s in tenths, three rounds each
    assert speed.seconds_per_round > 0
    assert os.listdir() == []


def test_processes_that_are_free_take_the_next_run() -> None:
    assert study_s([3, 1, 1, 1]) == 6
    assert study_s([3, 1, 1, 1], [0, 0]) == 3
    assert study_s([1, 1, 1, 3], [2, 2]) == 6
    assert study_s([], [1, 4]) == 4


def test_what_only_a_target_ends_is_told_by_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "open": {"kind": "synchronous", "stop": {"target": {"test_accuracy": 0.9}, "rounds": None}},
        "limited": {"kind": "synchronous", "stop": {"wall_clock": "2 s"}},
        "ends": {"kind": "synchronous"},
    }
    scenario = tiny(entries, stop={"rounds": 1000}, evaluate={"every": "4 rounds"}, seeds=[0, 1])
    data, speeds = data_of(scenario), {}
    for name in entries:
        machine = Machine(1000)
        monkeypatch.setattr(calibrate, "run_protocol", machine.run)
        speeds[name] = calibrated(scenario, name, data, clock=machine.clock, budget_s=3.0)
    found = [expectation(scenario, name, data, steps=2) for name in entries]
    table = expectation_table(scenario, found, speeds, workers=2, start_s=1.0)
    assert [row[-1] for row in table.rows] == ["19 ms a round", "2 s", "20 s"]
    # after a start of 1 s one worker takes both limited runs, 2 s each, and the second of two runs of 19.79 s
    assert any("all 4 runs without open take about 25 s on 2 workers" in note for note in table.notes)
