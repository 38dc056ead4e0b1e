"""The pages' tables come from results alone: ``plots/fedvs_tuned.py``, ``plots/vim_table4.py``, and two panels."""

import runpy
import statistics
from pathlib import Path

import pytest
from tiny_worlds import raw

import vflsim
from vflsim.intervals import t_interval

PLOTS = Path(__file__).parents[2] / "plots"
KEY = "training.client_optimizer.lr,training.server_optimizer.lr"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A tuning, and the results of the two scenarios that it wrote."""
    out = tmp_path_factory.mktemp("tuned")
    world = raw(
        {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}},
        stop={"rounds": 20},
        evaluate={"every": "2 rounds"},
        seeds=[0, 1],
        data__validation_fraction=0.1,
    )
    vflsim.tune(world, f"{KEY}=0.01,0.3", out / "tune")
    for name in ("common", "tuned"):
        vflsim.run(out / "tune" / f"{name}.yaml", out / name)
    return [out / name for name in ("tune", "common", "tuned")]


@pytest.mark.slow
def test_the_tables_hold_scores_results_and_leads(folders: list[Path], monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(PLOTS))
    monkeypatch.setattr("sys.argv", ["fedvs_tuned.py", *map(str, folders), "--protocol", "async"])
    runpy.run_path(str(PLOTS / "fedvs_tuned.py"), run_name="__main__")
    page = capsys.readouterr().out
    scores, found, *leads = [block for block in page.split("\n\n") if block.startswith("|")]
    assert scores.splitlines()[0] == "| lr | wait | async | mean |"
    assert [line.split(" | ")[0] for line in found.splitlines()[2:]] == ["| `wait`", "| `async`"]
    results = vflsim.open_results(folders[1])
    ends = [results.metrics.query("protocol == 'wait' and seed == @s")["test_accuracy"].iloc[-1] for s in (0, 1)]
    plateaus = [
        results.metrics.query("protocol == 'wait' and seed == @s")["test_accuracy"].iloc[-2:].mean() for s in (0, 1)
    ]
    row = found.splitlines()[2].strip("| ").split(" | ")
    assert row[1] == "20"
    for cell, values in ((row[2], ends), (row[3], plateaus)):
        interval = t_interval(values)
        assert cell == f"{100 * interval.mean:.1f} ± {100 * interval.half_width:.1f} %"
    assert [block.splitlines()[0].split(":")[0] for block in leads] == ["| tiny-common", "| tiny-tuned"]


@pytest.mark.slow
def test_both_rates_are_drawn_side_by_side(folders: list[Path], tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "both.png"
    titles = ["--title", "common rate", "--title", "own rates", "--columns", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["panels.py", "fedvs_fig2", *map(str, folders[1:]), *titles])
    runpy.run_path(str(PLOTS / "panels.py"), run_name="__main__")
    assert out.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr("sys.argv", ["panels.py", "fedvs_fig2", str(folders[1]), "--columns", "0"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PLOTS / "panels.py"), run_name="__main__")
    assert ended.value.code == 2


def test_accuracy_after_some_rounds_is_a_mean_over_folders_and_seeds(folders: list[Path], monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["vim_table4.py", *map(str, folders[1:]), "--rounds", "4", "20"])
    runpy.run_path(str(PLOTS / "vim_table4.py"), run_name="__main__")
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| test accuracy after | 4 rounds | 20 rounds |"
    metrics = [vflsim.open_results(folder).metrics for folder in folders[1:]]
    for row, protocol in zip(rows, ("wait", "async"), strict=True):
        cells = []
        for rounds in (4, 20):
            found = [each[(each["protocol"] == protocol) & (each["round"] == rounds)] for each in metrics]
            values = [100 * value for seeds in found for value in seeds["test_accuracy"]]
            assert len(values) == 4
            cells.append(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
        assert row == f"| {protocol} | {cells[0]} | {cells[1]} |"
