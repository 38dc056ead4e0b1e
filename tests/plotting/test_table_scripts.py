"""Scripts of tables: EASTER's accuracies and communication times as Markdown, and Markdown as CSV files."""

import csv
import io
import runpy
from pathlib import Path
from typing import Any

import pytest
from swept import run_sweep
from tiny_worlds import raw

import vflsim
from vflsim.results.sweeps import Sweep

PLOTS = Path(__file__).parents[2] / "plots"


WORLD: dict[str, Any] = {
    "timing": {"clients": {"link": {"up": "bandwidth Mbps", "down": "bandwidth Mbps"}}},
    "constants": {"bandwidth": 2},
    "evaluate": {"every": "2 rounds"},
    "stop": {"rounds": 6},
    "seeds": [0, 1],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Training of a protocol with three models and one with one, and the times of their rounds at two bandwidths."""
    out = tmp_path_factory.mktemp("easter")
    world = raw({"easter": {"kind": "easter"}, "wait": {"kind": "synchronous"}}, models__aggregate="mean", **WORLD)
    vflsim.run(world, out / "training")
    run_sweep(world, "constants.bandwidth", [1, 4], out=out / "sweep", timing_only=True)
    return [out / "training", out / "sweep"]


def test_every_party_has_a_column_and_a_protocol_with_one_model_one_number(folders, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["easter_tables.py", str(folders[0])])
    runpy.run_path(str(PLOTS / "easter_tables.py"), run_name="__main__")
    head, _, easter, wait = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")][1:] == [
        "rounds", "time", "sent", "mean", "server", "client-1", "client-2", "client-3", "client-4"
    ]  # fmt: skip
    metrics = vflsim.open_results(folders[0]).metrics.query("protocol == 'easter' and round == 6")
    own = 100 * metrics["test_accuracy.client-2"]
    assert f"| {own.mean():.2f} ± {own.std():.2f} |" in easter
    assert wait.count("—") == 5


def test_communication_time_is_the_rounds_to_the_target_times_a_round(folders, monkeypatch, capsys) -> None:
    training = vflsim.open_results(folders[0])
    last = training.metrics.query("round == 6")["test_loss"].max()
    target, out = f"test_loss={last:.9f}1", folders[1] / "drawn.png"
    monkeypatch.setattr("sys.argv", ["x", *map(str, folders), "--target", target, "--out", str(out)])
    script = runpy.run_path(str(PLOTS / "easter_communication.py"))
    times = script["communication_times"](training, Sweep.open(folders[1]), target)
    assert times["rounds"].between(1, 6).all()
    assert (times["time_s"] == times["rounds"] * times["round_s"]).all()
    one, other = times.query("protocol == 'easter'")["round_s"]
    assert one == pytest.approx(4 * other)  # nothing but bytes takes time
    runpy.run_path(str(PLOTS / "easter_communication.py"), run_name="__main__")
    assert out.read_bytes().startswith(b"\x89PNG")


SCRIPT = Path(__file__).parents[2] / "plots" / "as_csv.py"


PRINTED = "first\n\n| a | `b` |\n| --- | ---: |\n| x | **1,5** |\n\nsecond\n\n| c |\n|---|\n| y |"


def run(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setattr("sys.argv", ["as_csv.py", *map(str, files)])
    monkeypatch.setattr("sys.stdin", io.StringIO(PRINTED))
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_each_table_becomes_a_file_without_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "one.csv", tmp_path / "two.csv"
    run(monkeypatch, *files)
    rows = [[*csv.reader(file.read_text(encoding="utf-8").splitlines())] for file in files]
    assert rows == [[["a", "b"], ["x", "1,5"]], [["c"], ["y"]]]


def test_every_table_needs_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path / "one.csv")
    assert "2 tables were printed" in capsys.readouterr().err
    assert not (tmp_path / "one.csv").exists()
