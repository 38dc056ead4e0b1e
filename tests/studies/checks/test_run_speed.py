"""Wall-clock predictions: exact arithmetic on measured times, by clocks of the test's own."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tiny_worlds import data_of, tiny

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.scenario.models import Scenario
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks import run_speed
from vflsim.studies.checks.describe import expectation_table
from vflsim.studies.checks.estimates import Expectation, expectation
from vflsim.studies.checks.run_speed import Speed, measured_speed, study_s
from vflsim.vocabulary.execution_options import Execution

START_S, ROUND_S, ROW_S, ONCE_S = 0.25, 0.01, 0.0002, 0.5


def speed_of(scenario: Scenario, data: LoadedData, **given: Any) -> Speed:
    (name,) = scenario.protocols
    return measured_speed(scenario, expectation(scenario, name, data, steps=5), data, **given)


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
    ) -> Any:
        every = scenario.evaluate_of(name).every
        assert every.unit == "rounds"
        self.every.append(every.amount)
        evaluation_s = self.slow * ROW_S * len(data.labels["test"])
        self.now += self.slow * START_S + evaluation_s
        report(Progress(0.0, 0, 0, {"time_s": 0.0}))
        self.now += self.slow * ONCE_S
        last = min(self.rounds, scenario.stop_of(name).rounds or self.rounds)
        for rounds in range(1, last + 1):
            self.now += self.slow * ROUND_S
            if rounds % every.amount == 0 or rounds == last:
                self.now += evaluation_s
                report(Progress(1.0 * rounds, rounds, rounds, {"time_s": 1.0 * rounds}))
        return MagicMock()


@pytest.fixture(autouse=True)
def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_speed, "write_run", lambda *_: None)


@pytest.mark.parametrize(("rounds", "every"), [(1000, 8), (30, 8), (1000, 1)])
def test_the_measured_seconds_add_up_to_those_of_the_run(
    rounds: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(rounds)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    scenario = tiny("synchronous", evaluate={"every": f"{every} rounds"}, stop={"rounds": rounds})
    data = data_of(scenario)
    expected = expectation(scenario, "synchronous", data, steps=5)
    speed = measured_speed(scenario, expected, data, clock=machine.clock, budget_s=3.0)
    assert machine.every == [1, every]
    rows = len(data.labels["test"])
    assert speed.round_s == pytest.approx(ROUND_S + ROW_S * rows / every)
    began = machine.now
    machine.run(scenario, "synchronous", 0, data, report=lambda _: None)
    assert speed.run_s(expected) == pytest.approx(machine.now - began, rel=0.01)  # an evaluation at the end included


@pytest.mark.parametrize("slow", [1.0, 30.0, 1000.0])
def test_one_off_work_is_apart_however_slow_the_machine_is(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1000, slow)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    scenario = tiny("synchronous", evaluate={"every": "1 rounds"}, stop={"rounds": 1000})
    data = data_of(scenario)
    speed = speed_of(scenario, data, clock=machine.clock)
    assert speed.round_s == pytest.approx(slow * (ROUND_S + ROW_S * len(data.labels["test"])))
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
    speed = speed_of(scenario, data_of(scenario), clock=lambda: now[0], budget_s=1.0)
    assert speed.round_s == pytest.approx(0.25)


OWN = {"kind": "module", "path": "outside_protocols.three_tensors:ThreeTensors"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "entry", [{"kind": "asynchronous"}, {"kind": "synchronous"}, OWN], ids=lambda entry: str(entry)
)
def test_a_trial_goes_on_until_an_interval_has_no_one_off_work(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def watched(*args: Any, report: Callable[[Progress], None], **rest: Any) -> Any:
        began = now[0]

        def look(progress: Progress) -> None:  # a second a round, and 5,000 more in the first
            now[0] = began + progress.rounds + (5000 if progress.rounds else 0)
            report(progress)

        return run_protocol(*args, report=look, **rest)

    monkeypatch.setattr(run_speed, "run_protocol", watched)
    every = {"every": "1 rounds"}
    scenario = tiny(
        {"mine": entry},
        evaluate=every,
        partition={"clients": 20, "by": "columns"},
        models__server={"kind": "linear"},
        models__aggregate="sum",
    )
    speed = speed_of(scenario, data_of(scenario), clock=lambda: now[0])
    assert speed.round_s == pytest.approx(1.0)
    assert speed.startup_s == pytest.approx(5000.0)


def test_seconds_are_those_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1000)
    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    monkeypatch.setattr(run_speed.time, "thread_time", machine.clock)
    monkeypatch.setattr(run_speed.time, "perf_counter", lambda: 1000 * machine.now)
    scenario = tiny("synchronous", evaluate={"every": "1 rounds"}, stop={"rounds": 1000})
    data = data_of(scenario)
    assert speed_of(scenario, data).round_s == pytest.approx(ROUND_S + ROW_S * len(data.labels["test"]))
    monkeypatch.setattr(run_speed.time, "thread_time", lambda: 0.0)  # waits for a GPU
    on_gpu = speed_of(scenario, data, execution=Execution(device="cuda"))
    assert on_gpu.round_s == pytest.approx(1000 * (ROUND_S + ROW_S * len(data.labels["test"])))


def test_a_trial_ends_with_its_budget_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls, reached = [0.0], list[int]()

    def clock() -> float:  # a tenth of a second from row to row
        calls[0] += 0.1
        return calls[0]

    def watched(*args: Any, report: Callable[[Progress], None], **rest: Any) -> Any:
        def look(progress: Progress) -> None:
            reached.append(progress.rounds)
            report(progress)

        return run_protocol(*args, report=look, **rest)

    monkeypatch.setattr(run_speed, "run_protocol", watched)
    scenario = tiny("asynchronous", stop={"time": "1000 s"}, evaluate={"every": "3 rounds"})
    speed = speed_of(scenario, data_of(scenario), clock=clock, budget_s=1.5)
    assert max(reached) <= 30  # 1 s in tenths, three rounds each
    assert speed.round_s > 0
    assert os.listdir() == []


@pytest.mark.parametrize("writing_s", [0.0, 0.75])
def test_writing_the_results_is_one_off_work(writing_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, written = Machine(1000), list[Path]()

    def write_run(folder: Path, *_: Any) -> None:
        machine.now += writing_s
        written.append(folder)

    monkeypatch.setattr(run_speed, "run_protocol", machine.run)
    monkeypatch.setattr(run_speed, "write_run", write_run)
    scenario = tiny("synchronous", stop={"rounds": 1000})
    data = data_of(scenario)
    speed = speed_of(scenario, data, clock=machine.clock)
    assert speed.startup_s == pytest.approx(START_S + ROW_S * len(data.labels["test"]) + ONCE_S + writing_s)
    assert not written[0].parent.exists()  # nothing stays


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
    data, speeds, found = data_of(scenario), {}, list[Expectation]()
    for name in entries:
        machine = Machine(1000)
        monkeypatch.setattr(run_speed, "run_protocol", machine.run)
        found.append(expectation(scenario, name, data, steps=2))
        speeds[name] = measured_speed(scenario, found[-1], data, clock=machine.clock, budget_s=3.0)
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
    speed = measured_speed(scenario, expected, data_of(scenario))
    assert 0 < speed.round_s < 1
    assert ends == [4, 3]  # and not the 100,000 rounds of the run
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
        measured_speed(scenario, expected, data, budget_s=0.01)
        left = sum(issubclass(type(each), EmbeddingTable) for each in gc.get_objects()) - before
    finally:
        gc.enable()
    assert left == 0
    assert gc.get_freeze_count() == 0


def test_a_limit_of_real_time_bounds_the_prediction() -> None:
    world = tiny("synchronous", stop={"wall_clock": 1e-6, "rounds": 1000})
    expected = expectation(world, "synchronous", data_of(world))
    assert Speed(1.0, 1.0).run_s(expected) == 1e-6
