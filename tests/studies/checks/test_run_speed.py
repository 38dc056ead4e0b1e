"""Wall-clock predictions: exact arithmetic on measured times, by clocks of the test's own."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import data_of, raw, tiny

from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.load import as_scenario
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import Execution
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks import ending, run_speed
from vflsim.studies.checks.expected import expectation
from vflsim.studies.checks.expected_table import expectation_table
from vflsim.studies.checks.run_speed import calibrated, predicted_s, study_s

START_S, ROUND_S, ROW_S, ONCE_S = 0.25, 0.01, 0.0002, 0.5
FEW_ROWS = 64


class Machine:
    """A clock, and runs of ``rounds`` rounds that take exact times by it; the first round has one-off work.

    A machine that is ``slow`` takes that many times as long for all of it.
    """

    def __init__(self, rounds: int, slow: float = 1.0) -> None:
        self.now, self.rounds, self.slow, self.every = 100.0, rounds, slow, list[float]()

    def clock(self) -> float:
        return self.now

    def run(
        self, scenario: Scenario, name: str, _: int, data: LoadedData, *, report: Callable[[Progress], None], **__: Any
    ) -> None:
        every = scenario.evaluate_of(name).every
        assert every.unit == "rounds"
        self.every.append(every.amount)
        evaluation_s = self.slow * ROW_S * len(data.labels["test"])
        self.now += self.slow * START_S + evaluation_s
        report(Progress(0.0, 0, 0, {"time_s": 0.0}))
        self.now += self.slow * ONCE_S
        for rounds in range(1, self.rounds + 1):
            self.now += self.slow * ROUND_S
            if rounds % every.amount == 0 or rounds == self.rounds:
                self.now += evaluation_s
                report(Progress(1.0 * rounds, rounds, rounds, {"time_s": 1.0 * rounds}))


@pytest.mark.parametrize(("rounds", "every"), [(1000, 8), (30, 8), (1000, 1)])
def test_the_measured_seconds_add_up_to_those_of_the_run(
    rounds: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(rounds)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    scenario = tiny("synchronous", evaluate={"every": f"{every} rounds"}, stop={"rounds": rounds})
    data = data_of(scenario)
    expected = expectation(scenario, "synchronous", data, steps=5)
    speed = calibrated(scenario, "synchronous", data, clock=machine.clock, budget_s=3.0)
    assert machine.every == [1, every, 1]
    assert speed.memory_bytes == expected.size.bytes
    rows = len(data.labels["test"])
    assert speed.seconds_per_evaluation == pytest.approx(ROW_S * (rows - FEW_ROWS))
    assert speed.seconds_per_round == pytest.approx(ROUND_S + ROW_S * FEW_ROWS / every)
    began = machine.now
    machine.run(scenario, "synchronous", 0, data, report=lambda _: None)
    assert speed.run_s(expected) == pytest.approx(machine.now - began, rel=0.01)  # an evaluation at the end included


@pytest.mark.parametrize("slow", [1.0, 30.0, 1000.0])
def test_one_off_work_is_apart_however_slow_the_machine_is(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1000, slow)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    scenario = tiny("synchronous", evaluate={"every": "1 rounds"}, stop={"rounds": 1000})
    data = data_of(scenario)
    speed = calibrated(scenario, "synchronous", data, clock=machine.clock)
    assert speed.seconds_per_round == pytest.approx(slow * (ROUND_S + ROW_S * FEW_ROWS))
    assert speed.startup_s == pytest.approx(slow * (START_S + ROW_S * len(data.labels["test"]) + ONCE_S))


@pytest.mark.parametrize("disturbed_s", [0.0, 0.7])
def test_a_disturbed_interval_among_few_does_not_count(disturbed_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def run(*_: Any, report: Callable[[Progress], None], **__: Any) -> None:
        for rounds in range(
            100
        ):  # a quarter of a second each; the first has one-off work, a neighbour costs the second
            report(Progress(1.0 * rounds, rounds, rounds, {"time_s": 1.0 * rounds}))
            now[0] += 0.25 + {0: 1.5, 1: disturbed_s}.get(rounds, 0.0)

    monkeypatch.setattr(run_speed, "run_protocol", run)
    monkeypatch.setattr(run_speed, "BUDGET_S", 2.0)
    scenario = tiny("synchronous", evaluate={"every": "1 rounds"}, stop={"rounds": 1000})
    speed = calibrated(scenario, "synchronous", data_of(scenario), clock=lambda: now[0], budget_s=1.0)
    assert speed.seconds_per_round == pytest.approx(0.25)


OWN = {"kind": "module", "path": "outside_protocols.three_tensors:ThreeTensors"}


@pytest.mark.parametrize(
    "entry", [{"kind": "asynchronous"}, {"kind": "synchronous"}, OWN], ids=lambda entry: str(entry)
)
def test_a_trial_goes_on_until_an_interval_has_no_one_off_work(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def watched(*args: Any, report: Callable[[Progress], None], **rest: Any) -> None:
        began = now[0]

        def look(progress: Progress) -> None:  # a second a round, and 5,000 more in the first
            now[0] = began + progress.rounds + (5000 if progress.rounds else 0)
            report(progress)

        run_protocol(*args, report=look, **rest)

    monkeypatch.setattr(run_speed, "run_protocol", watched)
    every = {"every": "1 rounds"}
    scenario = tiny(
        {"mine": entry},
        evaluate=every,
        partition={"clients": 20, "by": "columns"},
        models__server={"kind": "linear"},
        models__aggregate="sum",
    )
    speed = calibrated(scenario, "mine", data_of(scenario), clock=lambda: now[0])
    assert speed.seconds_per_round == pytest.approx(1.0)
    assert speed.startup_s == pytest.approx(5000.0)


def test_seconds_are_those_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1000)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    monkeypatch.setattr(run_speed.time, "thread_time", machine.clock)
    monkeypatch.setattr(run_speed.time, "perf_counter", lambda: 1000 * machine.now)
    scenario = tiny("synchronous", evaluate={"every": "1 rounds"}, stop={"rounds": 1000})
    data = data_of(scenario)
    assert calibrated(scenario, "synchronous", data).seconds_per_round == pytest.approx(ROUND_S + ROW_S * FEW_ROWS)
    monkeypatch.setattr(run_speed.time, "thread_time", lambda: 0.0)  # waits for a GPU
    on_gpu = calibrated(scenario, "synchronous", data, Execution(device="cuda"))
    assert on_gpu.seconds_per_round == pytest.approx(1000 * (ROUND_S + ROW_S * FEW_ROWS))


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

    monkeypatch.setattr(run_speed, "run_protocol", watched)
    scenario = tiny("asynchronous", stop={"time": "1000 s"}, evaluate={"every": "3 rounds"})
    speed = calibrated(scenario, "asynchronous", data_of(scenario), clock=clock, budget_s=1.5)
    assert max(reached) <= 30  # 1 s in tenths, three rounds each
    assert speed.seconds_per_round > 0
    assert os.listdir() == []


@pytest.mark.parametrize("writing_s", [0.0, 0.75])
def test_writing_the_results_is_one_off_work(writing_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, written = Machine(1000), list[Path]()

    def write_run(folder: Path, *_: Any) -> None:
        machine.now += writing_s
        written.append(folder)

    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    monkeypatch.setattr(ending, "write_run", write_run)
    scenario = tiny("synchronous", stop={"rounds": 1000})
    data = data_of(scenario)
    speed = calibrated(scenario, "synchronous", data, clock=machine.clock)
    assert speed.startup_s == pytest.approx(START_S + ROW_S * len(data.labels["test"]) + ONCE_S + writing_s)
    assert len(written) == 1
    assert not written[0].parent.exists()  # nothing stays


def test_the_end_of_a_run_of_long_rounds_is_not_worth_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1000, slow=10.0)  # rounds of 0.1 s
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    monkeypatch.setattr(ending, "run_protocol", lambda *_, **__: pytest.fail("a round too many"))
    scenario = tiny("synchronous", stop={"rounds": 1000})
    assert calibrated(scenario, "synchronous", data_of(scenario), clock=machine.clock).seconds_per_round > 0


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
        monkeypatch.setattr(run_speed, "run_protocol", machine.run)
        speeds[name] = calibrated(scenario, name, data, clock=machine.clock, budget_s=3.0)
    found = [expectation(scenario, name, data, steps=2) for name in entries]
    table = expectation_table(scenario, found, speeds, workers=2, start_s=1.0)
    assert [row[-1] for row in table.rows] == ["19 ms a round", "2 s", "20 s"]
    # after a start of 1 s one worker takes both limited runs, 2 s each, and the second of two runs of 19.79 s
    assert any("all 4 runs without open take about 25 s on 2 workers" in note for note in table.notes)
    # 90 training and 180 test rows of 64 features in double precision
    assert any("Memory of 2 workers, about: 138.2 kB of features once, and up to " in note for note in table.notes)


def test_runs_in_which_no_time_passes_are_measured_by_a_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int | None] = []

    def counted(scenario: Scenario, name: str, *args: Any, **more: Any) -> Any:
        ends.append(scenario.stop_of(name).rounds)
        return run_protocol(scenario, name, *args, **more)

    monkeypatch.setattr(run_speed, "run_protocol", counted)
    scenario = tiny("synchronous", timing={}, stop={"rounds": 100_000}, evaluate={"every": "2 rounds"})
    expected = expectation(scenario, "synchronous", data_of(scenario))
    assert expected.step_s == 0
    speed = calibrated(scenario, "synchronous", data_of(scenario), expected=expected)
    assert 0 < speed.seconds_per_round < 1
    assert ends == [3, 3, 3]  # and not the 100,000 rounds of the run
    said = " ".join(expectation_table(scenario, [expected]).notes)
    assert "synchronous: no time passes in its rounds" in said
    timed = tiny("synchronous", stop={"rounds": 10})
    other = " ".join(expectation_table(timed, [expectation(timed, "synchronous", data_of(timed))]).notes)
    assert "no time passes" not in other


@pytest.mark.slow
def test_trials_leave_no_tables_behind_even_before_the_collector_comes() -> None:
    scenario = tiny({"own": {"kind": "asynchronous"}}, stop={"rounds": 20})
    data = data_of(scenario)
    expected = expectation(scenario, "own", data, steps=2)
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(each), EmbeddingTable) for each in gc.get_objects())
        calibrated(scenario, "own", data, expected=expected, budget_s=0.01)
        left = sum(issubclass(type(each), EmbeddingTable) for each in gc.get_objects()) - before
    finally:
        gc.enable()
    assert left == 0
    assert gc.get_freeze_count() == 0


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
