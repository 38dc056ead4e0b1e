"""Units on a Ray cluster of two nodes: the files of one process, also where a worker is killed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions

pytestmark = [pytest.mark.usefixtures("ray"), pytest.mark.slow]

SCENARIO = """\
name: tiny
data: {file: rows.csv, label: kind, test_fraction: 0.25}
partition: {clients: 2}
models: {client: {kind: module, path: "held_model:Held", embedding: 4, arguments: {folder: FOLDER}}, aggregate: mean,
  server: {kind: mlp, hidden: [4]}}
training: {batch: 20, client_optimizer: {kind: sgd, lr: 0.2}, server_optimizer: {kind: sgd, lr: 0.1}}
timing:
  server: {compute: 1 ms}
  clients: {compute: {kind: empirical, file: times.csv, unit: ms}}
protocols: {wait: {kind: synchronous}, async: {kind: asynchronous}}
stop: {rounds: 4}
evaluate: {every: 2 rounds}
seeds: 0:20
"""
HELD = """\
import os, sys, time
from pathlib import Path
from torch import nn

batches = 0

class Held(nn.Module):
    def __init__(self, feature_shape, embedding, folder):
        super().__init__()
        self.map, self.folder = nn.Linear(feature_shape[0], embedding), Path(folder)

    def forward(self, x):
        global batches
        batches += self.training and sys.argv[0].endswith("default_worker.py")  # not in the study's own trial
        if batches >= 3 and (self.folder / "hold").exists():
            taken = self.folder / f"taken-{os.getpid()}"
            try:
                (self.folder / "hold").rename(taken)
            except FileNotFoundError:
                pass  # another worker took it in between
            else:
                taken.write_text(__file__)
                taken.rename(self.folder / f"held-{os.getpid()}")
                while True:
                    time.sleep(0.1)
        return self.map(x)
"""


@pytest.fixture(scope="module")
def ray() -> Any:
    """Ray, imported by the first test and not by each worker's collection."""
    return pytest.importorskip("ray", reason="Ray is not installed: pip install 'vflsim[ray]'")


@pytest.fixture(scope="module")
def cluster(ray: Any) -> Iterator[str]:
    """The address of a cluster of two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # without it Ray writes one into the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            started.add_node(num_cpus=1)
            yield started.address
        finally:
            started.shutdown()


@pytest.fixture(scope="module")
def connected(ray: Any, cluster: str) -> Iterator[str]:
    """The cluster, to which this process stays connected: tests then share warm workers."""
    ray.init(address=cluster, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A scenario with files of its own: rows, times and a module, which workers must get."""
    folder = tmp_path_factory.mktemp("study")
    rows = "".join(f"{n % 7},{n % 5},{n % 3},{n % 11},{'even' if n % 2 else 'odd'}\n" for n in range(80))
    (folder / "rows.csv").write_text("a,b,c,d,kind\n" + rows)
    (folder / "times.csv").write_text("".join(f"{1 + n % 4}\n" for n in range(20)))
    (folder / "held_model.py").write_text(HELD)
    (folder / "tiny.yaml").write_text(SCENARIO.replace("FOLDER", str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield folder / "tiny.yaml"
    sys.modules.pop("held_model", None)


def files(folder: Path) -> dict[str, Any]:
    """Every file's bytes; of pages with wall-clock figures all else."""
    found: dict[str, Any] = {}
    for path in (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"):
        facts = (
            json.loads(path.read_text()) | {"wall_clock_s": 0, "together": 0}
            if path.name == "run.json"
            else path.read_bytes()
        )
        found[path.relative_to(folder).as_posix()] = facts
    return found


class Killing(Watcher):
    """Kills the worker of a run that is under way as soon as some others have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.killed = folder, 0
        self.began_: list[StudyRun] = []
        self.reports: list[Report] = []

    def began(self, run: StudyRun) -> None:
        self.began_.append(run)

    def progressed(self, run: StudyRun, progress: Progress) -> None:
        assert run in self.began_

    def ended(self, run: StudyRun, report: Report) -> None:
        assert run in self.began_
        self.reports.append(report)
        if len(self.reports) == 5:
            while not (held := [*self.folder.glob("held-*")]):
                time.sleep(0.05)
            self.killed = int(held[0].name.removeprefix("held-"))
            os.kill(self.killed, signal.SIGKILL)


def test_a_cluster_without_room_or_without_an_answer_is_one_message(
    cluster: str, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(scenario)
    for more, what in (({"num_cpus": 7}, "no node has 7 CPUs"), ({"num_gpus": 1}, "1 GPUs")):
        with pytest.raises(ScenarioError, match=what):
            run_study(loaded, options=RunOptions.of(engine="ray", address=cluster, **more))  # type: ignore[arg-type]
    assert not Path("results").exists()


def test_forty_units_on_two_nodes_have_the_bytes_of_one_process_although_a_worker_is_killed(
    connected: str, scenario: Path, tmp_path: Path
) -> None:
    loaded = load(scenario)
    assert run_study(loaded, tmp_path / "one").failures == {}
    (scenario.parent / "hold").touch()
    watcher = Killing(scenario.parent)
    two = run_study(loaded, tmp_path / "two", options=RunOptions.of(engine="ray", address=connected), watcher=watcher)
    assert two.failures == {}
    assert len(watcher.reports) == 40
    assert files(tmp_path / "two") == files(tmp_path / "one")
    held = scenario.parent / f"held-{watcher.killed}"
    assert Path(held.read_text()).name == "held_model.py"
    assert not Path(held.read_text()).is_relative_to(scenario.parent)  # the module has travelled


class Interrupting(Watcher):
    """Presses Ctrl-C when three runs have ended."""

    count = 0

    def ended(self, run: StudyRun, report: Report) -> None:
        self.count += 1
        if self.count == 3:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_ended_runs_and_cancels_the_others(connected: str, scenario: Path, tmp_path: Path) -> None:
    options = RunOptions.of(engine="ray", address=connected, resume=True)
    with pytest.raises(KeyboardInterrupt):
        run_study(load(scenario), tmp_path / "out", options=options, watcher=Interrupting())
    assert len([*(tmp_path / "out").glob("*/seed-*/run.json")]) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
