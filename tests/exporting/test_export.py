"""Results in trackers, read back by the trackers' own readers."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from command_line import Ended
from toy_runs import toy_results

import vflsim as package
from vflsim import exporting
from vflsim.errors import ResultsError
from vflsim.exporting.trackers import TRACKERS, export, logs_of
from vflsim.results import Results

RUNS = 8
"""Four protocols, two seeds."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("export") / "toy", seeds=2, record="rounds", horizon=12)


@pytest.fixture
def curve(toy: Path) -> pd.DataFrame:
    """The metrics of t-sync with seed 1."""
    return Results.open(toy).run("t-sync", 1).frame("metrics")


def pairs(frame: pd.DataFrame, step: str, scale: float = 1) -> list[tuple[int, float]]:
    return [(round(at * scale), value) for at, value in zip(frame[step], frame["test_accuracy"], strict=True)]


def test_logs_have_every_run_with_its_series_parameters_and_totals(toy: Path, curve: pd.DataFrame) -> None:
    logs = [*logs_of(toy)]
    assert len(logs) == RUNS
    log = next(each for each in logs if each.name == "t-sync, seed 1")
    assert (log.study, log.group, log.finished) == ("toy", "", True)
    assert log.parameters["protocol.t"] == 4
    assert log.parameters["seed"] == 1
    assert [(time, values["test_accuracy"]) for time, _, values in log.points()] == [
        *zip(curve["time_s"], curve["test_accuracy"], strict=True)
    ]
    assert log.totals["rounds"] == curve["round"].iloc[-1]
    missed = next(each for each in logs if each.name == "ignore, seed 0")
    assert "time_to_target" not in missed.totals  # never reached


def test_runs_of_a_sweep_are_grouped_by_their_points(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(toy)
    points = [{"values": [2, "5 Mbps"], "folder": "a", "finished": True}]
    page = {"scenario": "toy", "keys": ["protocols.t-sync.t", "up"], "timing_only": False, "points": points}
    (tmp_path / "sweep.json").write_text(json.dumps(page))
    logs = [*logs_of(tmp_path)]
    assert len(logs) == RUNS
    assert logs[0].name == "wait, t = 2, up = 5 Mbps, seed 0"
    assert (logs[0].parameters["t"], logs[0].parameters["up"]) == (2, "5 Mbps")


def test_tensorboard_reads_back_equal_numbers_by_rounds_and_by_virtual_time(
    toy: Path, curve: pd.DataFrame, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    said = export(toy, "tensorboard", tmp_path / "out")
    assert said.startswith(f"{RUNS} runs in ")
    found = EventAccumulator(str(tmp_path / "out" / "toy" / "t-sync-seed-1"))
    found.Reload()
    read = {
        tag: [(event.step, make_ndarray(event.tensor_proto).item(), event.wall_time) for event in found.Tensors(tag)]
        for tag in ("test_accuracy", "by_time/test_accuracy")
    }
    assert [each[:2] for each in read["test_accuracy"]] == pairs(curve, "round")
    assert [each[:2] for each in read["by_time/test_accuracy"]] == pairs(curve, "time_s", 1000)
    assert [each[2] for each in read["test_accuracy"]] == curve["time_s"].tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's and SQLAlchemy's own code
def test_mlflow_reads_back_equal_numbers_by_rounds_and_by_virtual_time(
    toy: Path, curve: pd.DataFrame, tmp_path: Path
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    assert export(toy, "mlflow", tmp_path / "out").startswith(f"{RUNS} runs in sqlite:///")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("toy")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == RUNS
    run = runs["t-sync, seed 1"]
    assert (run.data.params["protocol"], run.data.params["seed"], run.info.status) == ("t-sync", "1", "FINISHED")
    read = {
        name: client.get_metric_history(run.info.run_id, name) for name in ("test_accuracy", "by_time/test_accuracy")
    }
    assert sorted((each.step, each.value) for each in read["test_accuracy"]) == sorted(pairs(curve, "round"))
    assert sorted((each.step, each.value) for each in read["by_time/test_accuracy"]) == pairs(curve, "time_s", 1000)
    since = sorted(each.timestamp - run.info.start_time for each in read["test_accuracy"])
    assert since == [round(1000 * at) for at in curve["time_s"]]
    assert run.data.metrics["total/rounds"] == curve["round"].iloc[-1]


def records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, in whose format wandb keeps its messages: pieces in blocks of 32 KiB."""
    whole, place = b"", 7  # behind wandb's own header
    while place < len(data):
        if 32_768 - place % 32_768 < 7:
            place += 32_768 - place % 32_768
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield whole
            whole = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb's own code
def test_wandb_reads_back_equal_numbers_over_virtual_time(toy: Path, curve: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    assert export(toy, "wandb", tmp_path / "out").startswith(f"{RUNS} runs in ")
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in (tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb"):
        name, own = "", []
        for data in records(path.read_bytes()):
            record = Record.FromString(data)
            name = record.run.display_name or name
            if record.HasField("history"):
                items = record.history.item
                own.append({(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items})
        rows[name] = own
    assert len(rows) == RUNS
    read = [(row["time_s"], row["round"], row["test_accuracy"]) for row in rows["t-sync, seed 1"]]
    assert read == [*zip(curve["time_s"], curve["round"], curve["test_accuracy"], strict=True)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of trackio's own code
def test_trackio_reads_back_equal_numbers_by_rounds_and_by_virtual_time(
    toy: Path, curve: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio")
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    assert export(toy, "trackio", tmp_path / "out").startswith(f"{RUNS} runs in ")
    from trackio.sqlite_storage import SQLiteStorage

    logs = SQLiteStorage.get_logs("toy", "t-sync, seed 1")
    assert [(each["step"], each["test_accuracy"]) for each in logs if "test_accuracy" in each] == pairs(curve, "round")
    by_time = [(each["step"], each["by_time/test_accuracy"]) for each in logs if "by_time/test_accuracy" in each]
    assert by_time == pairs(curve, "time_s", 1000)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tracker: str, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mlflow", "torch.utils.tensorboard", "wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ResultsError, match=rf"is not installed(.|\n)*--to {tracker}|--to {tracker}: \w+ is not"
    ) as said:
        export(toy, tracker, tmp_path / "out")  # type: ignore[arg-type]
    assert f"vflsim[{tracker}]" in str(said.value)


class Recorded(list[tuple[str, Any]]):
    """A stand-in for a library: it notes every call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.append((name, named if not arguments else (*arguments, named)))
            return self

        return call


def test_trackio_gets_its_documented_calls(
    toy: Path, curve: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Recorded()
    functions = {name: getattr(calls, name) for name in ("init", "log", "finish")}
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(**functions))  # type: ignore[arg-type]
    monkeypatch.setenv("TRACKIO_DIR", "")
    export(toy, "trackio", tmp_path / "out")
    begun = [place for place, (name, _) in enumerate(calls) if name == "init"]
    assert [calls[place][1]["name"] for place in begun][:2] == ["wait, seed 0", "wait, seed 1"]
    logged = [(said[1]["step"], said[0]) for name, said in calls[begun[5] : begun[6]] if name == "log"]
    assert [(step, row["test_accuracy"]) for step, row in logged if "test_accuracy" in row] == pairs(curve, "round")
    assert calls[-1][0] == "finish"


def test_an_earlier_export_and_wrong_places_are_refused(
    toy: Path, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    toy.with_name("toy-wandb").mkdir(exist_ok=True)
    assert "is there already, from an earlier export" in vflsim("export", toy, "--to", "wandb").err
    assert "wandb takes no address" in vflsim("export", toy, "--to", "wandb", "--uri", "http://x").err
    with pytest.raises(ResultsError, match="two places"):
        package.export(toy, "mlflow", tmp_path, uri="http://x")


def test_no_tracker_is_imported_until_it_is_asked_for(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "tensorboard", "wandb", "trackio", "polars", "duckdb"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error
    for module in Path(exporting.__file__).parent.glob("*.py"):
        runpy.run_path(str(module))
    assert [*logs_of(toy)]
