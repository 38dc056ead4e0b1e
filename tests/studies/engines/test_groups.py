"""Units that one process executes together: each is written, reported and kept as a run alone is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw, tiny

from vflsim.errors import CheckpointError, RunError
from vflsim.results.store.pages import read_info
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines import Engine, Here, OneByOne, Unit
from vflsim.studies.engines.processes import Crew
from vflsim.studies.runs import group as group_module
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import choices, run_together
from vflsim.studies.runs.spec import StudySpec
from vflsim.vocabulary.execution_options import RunOptions

ENGINES: dict[str, Callable[[], Any]] = {"here": Here, "workers": lambda: Crew(1)}
each_engine = pytest.mark.parametrize("engine", ENGINES)
pytestmark = pytest.mark.usefixtures("warm_workers")


class Noting(Watcher):
    """Notes who begins, goes on and ends; calls ``then`` at each progress."""

    def __init__(self, then: Callable[[int, Progress], object] = lambda *_: None) -> None:
        self.told: list[tuple[str, int]] = []
        self._then = then

    def began(self, run: StudyRun) -> None:
        self.told.append(("began", run.seed))

    def progressed(self, run: StudyRun, progress: Progress) -> None:
        assert ("began", run.seed) in self.told
        self._then(run.seed, progress)


def group(scenario: Scenario, folder: Path, watcher: Watcher, options: RunOptions | None = None, **run: Any) -> Unit:
    """The runs of the scenario's first protocol as a unit with companions."""
    options = options or RunOptions(checkpoint_every=3600.0)
    spec = StudySpec(scenario, folder, choices(scenario, "auto", False), False, options)
    name = next(iter(scenario.protocols))
    runs = [StudyRun(name, seed, number, 3, **run) for number, seed in enumerate(scenario.seeds, start=1)]
    first, *others = (Unit(spec, each, watcher) for each in runs)
    return replace(first, companions=tuple(others))


def executed(engine: Engine, unit: Unit) -> Iterator[tuple[int, Report]]:
    with engine, Interrupt() as interrupt:
        for each, report in engine.carry_out([unit], interrupt):
            assert report.error is not None or each.place.is_dir()
            yield each.run.seed, report


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("seed-*/*.parquet"))}


@each_engine
def test_each_member_is_written_and_reported_as_if_it_were_alone(engine: str, tmp_path: Path) -> None:
    watcher, scenario = Noting(), tiny(seeds=[0, 1, 2], record="rounds")
    done = dict(executed(ENGINES[engine](), group(scenario, tmp_path / "group", watcher)))
    assert [*done] == [0, 1, 2]
    assert all(report.error is None for report in done.values())
    assert sorted(watcher.told) == [("began", seed) for seed in (0, 1, 2)]
    whole = group(scenario, tmp_path / "alone", Watcher())
    for unit in whole.members:
        dict(executed(Here(), replace(unit, companions=())))
    assert tables(tmp_path / "group") == tables(tmp_path / "alone")
    assert [read_info(place).together for place in sorted(tmp_path.glob("group/*/seed-*"))] == [3] * 3


class Alone(OneByOne):
    """Notes the units that it is to execute."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report:
        self.seeds.append(unit.run.seed)
        unit.place.mkdir(parents=True)
        return None  # type: ignore[return-value]


def test_engines_of_single_runs_take_companions_one_by_one(tmp_path: Path) -> None:
    engine, watcher, unit = Alone(), Noting(), group(tiny(seeds=[0, 1, 2]), tmp_path, Watcher())
    units = [replace(each, watcher=watcher, companions=()) for each in unit.members]
    with Interrupt() as interrupt:
        reports = engine.carry_out([replace(units[0], companions=tuple(units[1:]))], interrupt)
        assert [each.run.seed for each, _ in reports] == engine.seeds == [0, 1, 2]
    assert watcher.told == [("began", 0), ("began", 1), ("began", 2)]


# --- errors -----------------------------------------------------------------------------------------------------------


@each_engine
def test_members_that_diverge_are_written_and_stop_no_other(engine: str, tmp_path: Path) -> None:
    huge = {"kind": "synchronous", "training": {"client_optimizer": {"kind": "sgd", "lr": 1e200}}}
    unit = group(tiny({"bad": huge}, seeds=[0, 1], record="rounds"), tmp_path, Watcher())
    done = dict(executed(ENGINES[engine](), unit))
    assert [report.info.status for report in done.values()] == ["diverged", "diverged"]
    assert {path.name for path in (tmp_path / "bad").iterdir()} == {"seed-0", "seed-1"}


def broken_after(first: int, error: Exception) -> Callable[..., Any]:
    """``run_together`` that fails after so many runs if there are several."""

    def run(requests: Sequence[Any], *rest: Any) -> Iterator[Any]:
        for done, each in enumerate(run_together(requests, *rest)):
            if done == first and len(requests) > 1:
                raise error
            yield each

    return run


def test_a_group_that_cannot_go_on_goes_on_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "run_together", broken_after(1, RuntimeError("out of memory")))
    done = dict(executed(Here(), group(tiny(seeds=[0, 1, 2], record="rounds"), tmp_path, Watcher())))
    assert {seed: report.note for seed, report in done.items()} == {
        0: "",
        1: "alone: RuntimeError: out of memory",
        2: "alone: RuntimeError: out of memory",
    }
    assert len([*tmp_path.glob("*/seed-*/run.json")]) == 3


def test_with_resume_a_checkpoint_that_misleads_ends_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "run_together", broken_after(1, CheckpointError("went elsewhere")))
    unit = group(tiny(seeds=[0, 1], record="rounds"), tmp_path, Watcher(), RunOptions(resume=True))
    reports = executed(Here(), unit)
    assert next(reports)[0] == 0
    with pytest.raises(CheckpointError, match="went elsewhere"):
        next(reports)


def test_a_worker_that_is_killed_costs_one_member_at_most(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    model = {"kind": "module", "path": "deadly_models:Deadly", "embedding": 6, "arguments": {"flag": str(flag)}}
    scenario, watcher = load(raw("synchronous", models__client=model, seeds=[0, 1, 2])), Noting()
    flag.touch()
    done = dict(executed(Crew(1), group(scenario, tmp_path / "out", watcher)))
    assert sorted(done) == [0, 1, 2]
    assert all(report.error is None for report in done.values())  # killed in the group, never alone
    assert not flag.exists()
    assert sorted(watcher.told) == [("began", seed) for seed in (0, 1, 2)]
    assert not [*tmp_path.rglob("*.log")]


ONCE_MORE = """
import os
import signal
from pathlib import Path

from torch import nn

class Fatal(nn.Linear):
    def __init__(self, feature_shape, embedding, flag):
        super().__init__(feature_shape[0], embedding)
        self.flag = Path(flag)

    def forward(self, x):
        if self.training and self.flag.exists() and not list(self.flag.parent.glob("out/*/seed-1")):
            if list(self.flag.parent.glob("out/*/seed-0")):
                print("last words", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
"""


def test_a_member_that_kills_its_worker_also_alone_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fatal_model.py").write_text(ONCE_MORE)
    monkeypatch.syspath_prepend(tmp_path)
    flag = tmp_path / "flag"
    model = {"kind": "module", "path": "fatal_model:Fatal", "embedding": 6, "arguments": {"flag": str(flag)}}
    unit = group(load(raw("synchronous", models__client=model, seeds=[0, 1])), tmp_path / "out", Watcher())
    flag.touch()
    done = dict(executed(Crew(1), unit))
    assert done[0].error is None
    assert isinstance(done[1].error, RunError)
    assert "was killed by SIGKILL" in done[1].error.what
    (note,) = done[1].error.__notes__
    assert note.endswith("last words")
    assert {path.name for path in tmp_path.rglob(".*")} == {".seed-1.log"}


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "seeds", "rounds"), [("here", (0, 1, 2), 300), ("workers", (0, 1), 1500)])
def test_ctrl_c_keeps_a_checkpoint_of_each_run_from_which_they_continue(
    engine: str, seeds: tuple[int, ...], rounds: int, tmp_path: Path
) -> None:
    scenario = tiny(seeds=[*seeds], record="rounds", stop={"rounds": rounds}, evaluate={"every": "10 rounds"})

    def press(seed: int, progress: Progress) -> None:
        if seed == 1 and progress.rounds >= 10 and "test_loss" in progress.metrics and progress.share < 1:
            signal.raise_signal(signal.SIGINT)

    [*executed(Here(), group(scenario, tmp_path / "whole", Watcher()))]
    with pytest.raises(KeyboardInterrupt):
        [*executed(ENGINES[engine](), group(scenario, tmp_path / "out", Noting(press)))]
    assert {place.name for place in tmp_path.glob("out/*/*")} == {f".seed-{seed}.checkpoint" for seed in seeds}
    done = dict(executed(ENGINES[engine](), group(scenario, tmp_path / "out", Watcher(), continued=True)))
    assert "resumed from" in done[1].note
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")
