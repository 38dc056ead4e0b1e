"""Runs side by side: the same files, and the end of one process is not the end of the study."""

from __future__ import annotations

import errno
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest
from swept import run_sweep
from tiny_worlds import RANDOM_TIMING, raw, tiny

from vflsim.errors import NonFiniteError, ResultsError, RunError, ScenarioError
from vflsim.learning.data import shelf as shelf_module
from vflsim.learning.data.spec import Data
from vflsim.protocols.synchronous import Synchronous
from vflsim.results import verify_folder
from vflsim.results.store.manifest import Manifest
from vflsim.scenario import load
from vflsim.scenario.load import dump
from vflsim.simulation.reporter import Progress
from vflsim.studies import sweep as sweeping
from vflsim.studies.engines import Group, processes as workers_module
from vflsim.studies.engines.processes import _Worker
from vflsim.studies.plan import axes_of, planned
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions

TWO = RunOptions(workers=2)
PROTOCOLS = {
    "wait": {"kind": "synchronous"},
    "bad": {"kind": "synchronous", "training": {"client_optimizer": {"kind": "sgd", "lr": 1e200}}},
    "t-sync": {"kind": "t_synchronous", "t": 2, "max_staleness": 2},
    "async": {"kind": "asynchronous", "training": {"batches": "own", "dtype": "float32"}},
}


def files(folder: Path) -> dict[str, bytes]:
    """Everything but the pages with wall-clock figures."""
    found = (
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("run.json", "manifest.json")
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


class Listening(Watcher):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.began_: list[StudyRun] = []
        self.latest: dict[StudyRun, Progress] = {}
        self.reports: dict[tuple[str, int], Report] = {}

    def began(self, stage: StudyRun) -> None:
        self.began_.append(stage)

    def progressed(self, stage: StudyRun, progress: Progress) -> None:
        assert stage in self.began_
        self.latest[stage] = progress

    def ended(self, stage: StudyRun, report: Report) -> None:
        self.reports[stage.protocol, stage.seed] = report


def before_workers_start(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> list[_Worker]:
    """Let something happen before each worker starts; return the workers."""
    workers: list[_Worker] = []

    class Watched(_Worker):
        def __init__(self, threads: int) -> None:
            call()
            super().__init__(threads)
            workers.append(self)

    monkeypatch.setattr(workers_module, "_Worker", Watched)
    return workers


@pytest.mark.usefixtures("warm_workers")
def test_two_workers_write_the_bytes_of_one_and_say_the_same(tmp_path: Path) -> None:
    scenario = tiny(PROTOCOLS, timing=RANDOM_TIMING, seeds=[0, 1], stop={"rounds": 8})
    told = {workers: Listening() for workers in (1, 2)}
    done = {
        workers: run_study(
            scenario, tmp_path / str(workers), options=RunOptions(workers=workers), watcher=told[workers]
        )
        for workers in (1, 2)
    }
    assert files(tmp_path / "1") == files(tmp_path / "2")
    lists = [Manifest.read(tmp_path / workers) for workers in ("1", "2")]
    assert lists[0] is not None
    assert lists[1] is not None
    assert lists[0].files.keys() == lists[1].files.keys()
    assert all("the run diverged" in problem for problem in verify_folder(tmp_path / "2"))
    orders = [
        [(stage.protocol, stage.seed, stage.number, stage.total) for stage in told[workers].began_]
        for workers in (1, 2)
    ]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[1][:5] == [  # each worker has a seed
        ("wait", 0, 1, 8),
        ("bad", 0, 2, 8),
        ("t-sync", 0, 3, 8),
        ("async", 0, 4, 8),
        ("wait", 1, 5, 8),
    ]
    one, two = ({run: repr(report.last) for run, report in told[workers].reports.items()} for workers in (1, 2))
    assert one == two
    assert {stage.seed for stage in told[2].latest} == {0, 1}
    for study in done.values():
        assert {run: (type(error), str(error)) for run, error in study.failures.items()} == {
            ("bad", seed): (NonFiniteError, str(done[1].failures["bad", seed])) for seed in (0, 1)
        }
    pages = {
        workers: [run.info.model_dump(exclude={"wall_clock_s", "together"}) for run in study.results.runs]
        for workers, study in done.items()
    }
    assert pages[1] == pages[2]


@pytest.mark.usefixtures("warm_workers")
def test_a_worker_that_is_killed_costs_its_run_alone(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    model = {"kind": "module", "path": "deadly_models:Deadly", "embedding": 6, "arguments": {"flag": str(flag)}}
    scenario = load(
        raw({"a": {"kind": "synchronous"}, "b": {"kind": "asynchronous"}}, models__client=model, seeds=[0, 1])
    )
    run_study(scenario, tmp_path / "whole")
    flag.touch()
    done = run_study(scenario, tmp_path / "out", options=TWO)
    (((protocol, seed), error),) = done.failures.items()
    assert isinstance(error, RunError)
    assert "was killed by SIGKILL" in error.what
    assert error.where.startswith("its worker process, in round ")
    log = tmp_path / "out" / protocol / f".seed-{seed}.log"
    assert log.read_text() == "these were my last words\n"
    assert error.__notes__ == [f"its log is {log}, and ends:\n    these were my last words"]
    lost = done.results.run(protocol, seed)
    assert (lost.info.status, lost.info.error) == ("failed", str(error))
    assert [len(table) for table in lost.tables().named().values()] == [0, 0, 0]
    place = f"{protocol}/seed-{seed}/"
    whole, kept = files(tmp_path / "whole"), files(tmp_path / "out")
    others = [name for name in whole if "/" in name and not name.startswith(place)]
    assert {name.split("/")[0] for name in others} == {"a", "b"}
    assert {name: kept[name] for name in others} == {name: whole[name] for name in others}

    again = Listening()
    done = run_study(scenario, tmp_path / "out", options=RunOptions(resume=True), watcher=again)
    assert [(stage.protocol, stage.seed) for stage in again.began_] == [(protocol, seed)]
    assert done.failures == {}
    assert files(tmp_path / "out") == whole  # nor is there a log


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_worker_that_is_killed_between_two_runs_costs_none(tmp_path: Path) -> None:
    scenario = tiny("synchronous", seeds=[0], stop={"rounds": 3})
    with workers_module.Crew(1) as crew:
        run_study(scenario, tmp_path / "1", options=TWO, engine=crew)
        (executor,) = (worker._executor for worker in crew._workers)
        (process,) = executor._processes
        os.kill(process, signal.SIGKILL)
        while not executor._flags.broken:
            time.sleep(0.01)
        assert run_study(scenario, tmp_path / "2", options=TWO, engine=crew).failures == {}
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_sweep_keeps_its_workers_from_value_to_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = before_workers_start(monkeypatch, lambda: None)
    for workers in (1, 2):
        world = raw({"a": {"kind": "synchronous"}, "b": {"kind": "asynchronous"}}, stop={"rounds": 3})
        run_sweep(world, "training.batch", [10, 20], out=tmp_path / str(workers), options=RunOptions(workers=workers))
    assert files(tmp_path / "1") == files(tmp_path / "2")
    assert len(started) == 2
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("warm_workers")
def test_workers_read_no_data_that_their_study_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "d.npz"
    np.savez(file, x=np.arange(240.0).reshape(40, 6) % 7, y=np.arange(40) % 3)
    world = raw("synchronous", data={"file": str(file), "label": "y"}, seeds=[0, 1], stop={"rounds": 3})
    run_study(load(world), tmp_path / "1")
    before_workers_start(monkeypatch, lambda: file.unlink(missing_ok=True))
    assert run_study(load(world), tmp_path / "2", options=TWO).failures == {}
    assert not file.exists()
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_points_with_other_data_have_their_own_and_equal_ones_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = [], shelf_module.load

    def counted(data: Data, *given: Any, **more: Any) -> Any:
        read.append(data.split_seed)
        return real(data, *given, **more)

    monkeypatch.setattr(shelf_module, "load", counted)
    world = raw(
        {"a": {"kind": "synchronous"}, "b": {"kind": "synchronous", "training": {"dtype": "float32"}}},
        stop={"rounds": 3},
    )
    over = {"data.split_seed": [3, 4], "training.batch": [10, 20]}
    for workers in (1, 2):
        plan = planned(world, axes_of(world, over))
        done = sweeping.run_sweep(plan, tmp_path / str(workers), options=RunOptions(workers=workers))
        assert done.failures == {}
        assert sorted(read) == [3, 3, 4, 4]  # in each of the two precisions
        read.clear()
    assert files(tmp_path / "1") == files(tmp_path / "2")
    one, other = (tmp_path / "2" / name / "a" / "seed-0" for name in ("split_seed-3_batch-10", "split_seed-4_batch-10"))
    assert (one / "metrics.parquet").read_bytes() != (other / "metrics.parquet").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("obstacle", ["another system", "no room"])
def test_where_nothing_can_be_shared_workers_read_for_themselves(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    if obstacle == "no room":
        monkeypatch.setattr(shelf_module, "SharedData", full)
    else:
        monkeypatch.setattr(workers_module, "can_share", lambda: False)
    scenario = tiny("synchronous", seeds=[0, 1], stop={"rounds": 3})
    assert run_study(scenario, tmp_path / "2", options=TWO).failures == {}
    run_study(scenario, tmp_path / "1")
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_libraries_of_a_worker_start_as_many_threads_as_a_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr(workers_module, "begin", id)  # nothing that imports PyTorch
    worker = workers_module._Worker(3)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    try:
        assert [worker._executor.submit(os.getenv, name).result() for name in names] == ["3", "3", "3"]
    finally:
        worker.end()
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("MKL_NUM_THREADS")) == ("7", None)


def test_what_cannot_be_handed_to_a_worker_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    lock = threading.Lock()

    class Local(Synchronous):
        kind: Literal["local"] = "local"

        async def server(self, node: Any) -> None:
            with lock:
                pass
            await super().server(node)

    scenario = tiny("synchronous").with_protocols({"mine": Local()})
    with pytest.raises(ScenarioError, match=r"--workers: the scenario cannot be handed to another process") as caught:
        run_study(scenario, tmp_path / "out", options=TWO)
    assert "'_thread.lock'" in caught.value.what
    assert "one worker" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


OF_ONES_OWN = """
from threading import Lock
from typing import Literal
from vflsim.protocols.vafl import Asynchronous

guarded = Lock()

if {defined}:
    class Mine(Asynchronous):
        kind: Literal["mine"] = "mine"

        def describe(self, setting):
            return repr(guarded)
"""


def main_module(path: Path, defined: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script as the main module of this process, imported before it is handed to workers."""
    path.write_text(OF_ONES_OWN.format(defined=defined))
    spec = importlib.util.spec_from_file_location("__main__", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "__main__", module)
    spec.loader.exec_module(module)
    module.__spec__ = None  # as of a script that is run by its path
    return module


@pytest.mark.slow
@pytest.mark.parametrize("case", ["only when it is the main module", "with a lock"])
def test_a_protocol_from_the_main_module_runs_in_workers(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defined = "__name__ == '__main__'" if case == "only when it is the main module" else "True"
    main = main_module(tmp_path / "script.py", defined, monkeypatch)
    if case != "with a lock":  # a worker can import the script, and has a lock of its own
        main.guarded = None
    scenario = tiny("synchronous", seeds=[0], stop={"rounds": 3}).with_protocols({"mine": main.Mine()})
    run_study(scenario, tmp_path / "1")
    with workers_module.Crew(1) as crew:
        assert run_study(scenario, tmp_path / "2", options=TWO, engine=crew).failures == {}
    assert files(tmp_path / "1") == files(tmp_path / "2")


FROM_STANDARD_INPUT = """
import sys
from typing import Literal

import vflsim
from vflsim.errors import RunError
from vflsim.protocols.vafl import TSynchronous

FEW = 2

class Mine(TSynchronous):
    kind: Literal["mine"] = "mine"
    t: int = FEW

class Mishap(RunError):
    pass

class Failing(Mine):
    kind: Literal["failing"] = "failing"

    async def client(self, node):
        node.start(self.mishap(node))
        await super().client(node)

    async def mishap(self, node):
        await node.sleep(0.1)  # after the rounds that are tried out
        raise Mishap("on purpose")

scenario = vflsim.load(sys.argv[1]).with_protocols({"mine": Mine(), "failing": Failing()})
for workers in (1, 2):
    try:
        vflsim.run(scenario, f"{sys.argv[2]}/{workers}", workers=workers)
    except Mishap as error:
        print(error)
"""


@pytest.mark.slow
def test_a_script_on_standard_input_runs_its_own_protocol_in_workers(tmp_path: Path) -> None:
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(dump(tiny("synchronous", stop={"rounds": 60})))
    command = [sys.executable, "-", str(scenario), str(tmp_path)]
    done = subprocess.run(command, input=FROM_STANDARD_INPUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 2 * "client-1 (beside) at 0.1 s: on purpose\n"
    assert {name.split("/")[0] for name in files(tmp_path / "1") if "/" in name} == {"synchronous", "mine", "failing"}
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.usefixtures("warm_workers")
def test_workers_that_end_before_they_begin_end_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.studies.engines.processes.begin", os._exit)
    with pytest.raises(RunError, match=r"ended with status \d before its first run"):
        run_study(tiny("synchronous", seeds=[0, 1]), tmp_path / "out", options=TWO)
    assert list(tmp_path.iterdir()) == []


UNGUARDED = """
import sys
import vflsim

vflsim.run(sys.argv[1], out=sys.argv[2], workers=2, progress=False)
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_has_workers_too(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(dump(tiny("synchronous", seeds=[0, 1], stop={"rounds": 3})))
    (tmp_path / "script.py").write_text(UNGUARDED)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "tiny.yaml"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("out/synchronous/seed-*"))) == 2


@pytest.mark.usefixtures("warm_workers")
def test_who_has_not_begun_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waited = []
    monkeypatch.setattr(workers_module, "wait", lambda futures, *_: waited.append(len(futures)))
    crew = workers_module.Crew(2)
    for begun in (True, False):
        worker = crew._free(1)
        worker.begun, worker.group = begun, Group([Mock(**{"spec.log_of.return_value": tmp_path / "log"})])
    crew.dismiss()
    assert waited == [1]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_workers_that_cannot_write_end_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, spoilt = tiny("synchronous", seeds=[0, 1], stop={"rounds": 3}), tmp_path / "out" / "synchronous"
    before_workers_start(monkeypatch, lambda: spoilt.write_text("no folder"))
    with pytest.raises(ResultsError, match=r"synchronous/\.?seed-\d.*: cannot be written: "):
        run_study(scenario, tmp_path / "out", options=TWO)
    assert multiprocessing.active_children() == []
