"""All points' runs go to one engine without a barrier, and a run that several points share is done once."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest
from tiny_worlds import raw

from vflsim.errors import RunError
from vflsim.results.verify import verify_folder
from vflsim.studies import sweep as sweeping
from vflsim.studies.engines import Here, Reports, Unit
from vflsim.studies.plan import SweepPlan, axes_of, planned
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.study import run_study
from vflsim.studies.sweep import SweepDone, SweepWatcher, run_sweep
from vflsim.vocabulary.execution_options import RunOptions

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


class Engine:
    """Takes ``size`` units before it executes the latest of them; notes them all."""

    def __init__(self, size: int) -> None:
        self._size, self._here = size, Here()
        self.done: list[tuple[str, str, int]] = []
        self.under_way: list[set[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        left, taken = iter(units), []
        while True:
            while len(taken) < self._size and (unit := next(left, None)) is not None:
                taken.append(unit)
            if not taken:
                return
            self.under_way.append({unit.spec.folder.name for unit in taken})
            unit = taken.pop()
            self.done.append((unit.spec.folder.name, unit.run.protocol, unit.run.seed))
            yield from self._here.carry_out([unit], interrupt)


def plan(over: dict[str, Any] | None = None, **changes: Any) -> SweepPlan:
    world = raw(BOTH, **{"stop": {"rounds": 4}, "seeds": [0, 1], "record": "rounds", **changes})
    return planned(world, axes_of(world, over or {"fast.t": [1, 3], "training.batch": [20, 50]}))


class Counting(SweepWatcher):
    """Counts the runs that the points of a sweep have from other points."""

    shared = 0

    def ended(self, step: Any, study: Any) -> None:
        self.shared += study.shared


def run(made: SweepPlan, out: Path, monkeypatch: pytest.MonkeyPatch, size: int = 1, **how: Any) -> tuple[Any, Engine]:
    engine = Engine(size)
    monkeypatch.setattr(sweeping, "engine_of", lambda *_: engine)
    watcher = how.pop("watcher", None)
    return run_sweep(made, out, options=RunOptions(**how), watcher=watcher), engine


def contents(folder: Path) -> dict[str, bytes]:
    kept = (".parquet", ".safetensors", "scenario.yaml", "summary.md")
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.endswith(kept))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("size", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_every_point_has_the_files_of_a_study_of_its_own_and_shared_runs_are_done_once(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out, counting = plan(), tmp_path / "swept", Counting()
    for point in made.points:
        run_study(point.scenario, tmp_path / "alone" / point.folder)
    _, engine = run(made, out, monkeypatch, size, watcher=counting, together=None)
    assert (len(engine.done), counting.shared) == (12, 4)
    assert len(set(engine.done)) == 12  # wait at two of four points
    assert {folder for folder, name, _ in engine.done if name == "wait"} == {"t-1_batch-20", "t-1_batch-50"}
    for point in made.points:
        assert contents(out / point.folder) == contents(tmp_path / "alone" / point.folder)
    assert any(len(folders) > 1 for folders in engine.under_way)  # there is no barrier between points
    if size == 3:
        assert engine.under_way[0] == {"t-1_batch-20"}  # point after point, none opened before its time
        assert verify_folder(out) == []


@pytest.mark.slow
def test_resuming_places_a_shared_run_again_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sweep"
    run(plan(), out, monkeypatch)
    before = contents(out)
    shutil.rmtree(out / "t-3_batch-50" / "wait")
    studies: list[str] = []

    class Listening(SweepWatcher):
        def ended(self, step: Any, study: Any) -> None:
            studies.append(study.summary)

    engine = Engine(1)
    monkeypatch.setattr(sweeping, "engine_of", lambda *_: engine)
    run_sweep(plan(), out, options=RunOptions(resume=True), watcher=Listening())
    assert engine.done == []
    assert studies == ["4 runs, all kept from before"] * 3 + ["4 runs: 2 kept from before, 2 shared with other values"]
    assert contents(out) == before


def test_a_shared_run_that_fails_fails_at_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = {"kind": "synchronous", "training": {"server_optimizer": {"kind": "sgd", "lr": 1e300}}}
    world = raw(BOTH | {"wait": wild}, stop={"rounds": 4}, seeds=[0], record="rounds")
    made = planned(world, axes_of(world, {"fast.t": [1, 3]}))
    done: SweepDone = run(made, tmp_path / "sweep", monkeypatch, size=100)[0]
    assert set(done.failures) == {(0, "wait", 0), (1, "wait", 0)}
    assert all(isinstance(error, RunError) for error in done.failures.values())
    assert [len(found.failed) for found in done.sweep.results] == [1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_two_workers_write_the_files_of_one_process(tmp_path: Path) -> None:
    for workers in (1, 2):
        run_sweep(plan(), tmp_path / str(workers), options=RunOptions(workers=workers))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
