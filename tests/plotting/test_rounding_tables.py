"""The tables and the figure of the rounding paper's page: ``plots/rounding_tables.py`` and ``plots/leakage.py``."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
from attacked_runs import finished
from swept import run_sweep
from tiny_worlds import raw

from vflsim.attacks import chosen, evaluate, save
from vflsim.errors import ResultsError
from vflsim.results import Results
from vflsim.results.sweeps import Sweep

PLOTS = Path(__file__).parents[2] / "plots"
ENTRIES = {
    "plain": {"kind": "synchronous"},
    "rounded": {"kind": "synchronous", "codec": "round"},
    "c-vfl": {"kind": "c_vfl", "local_steps": 1},
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs that were attacked; the clients of one protocol hold the labels."""
    out = tmp_path_factory.mktemp("leakage") / "study"
    study = finished(
        ENTRIES,
        out,
        record={"tables": "summary", "views": "200 rows"},
        data={"name": "digits", "train_rows": 200},
        stop={"rounds": 20},
        evaluate={"every": "5 rounds"},
        target={"test_accuracy": 0.3, "for": "1 evaluation"},
        training={
            "batch": 50,
            "client_optimizer": {"kind": "adam", "lr": 0.05},
            "server_optimizer": {"kind": "adam", "lr": 0.05},
        },
    )
    save(evaluate(study, chosen(["reconstruction", "label_inference"], ["reconstruction.method=linear"])), _beside(out))
    return study


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-evaluated")


def test_a_sweep_is_a_table_of_accuracies_at_the_end(tmp_path: Path, monkeypatch, capsys) -> None:
    world = raw({"wait": {"kind": "synchronous"}}, constants={"r": 0.5}, seeds=[0, 1])
    world["partition"] = {"by": "columns", "shares": ["r", "1 - r"]}
    run_sweep(world, "constants.r", [0.25, 0.5], out=tmp_path / "sweep")
    monkeypatch.setattr("sys.argv", ["rounding_tables.py", str(tmp_path / "sweep")])
    runpy.run_path(str(PLOTS / "rounding_tables.py"), run_name="__main__")
    header, _, row = capsys.readouterr().out.splitlines()
    assert header == "| tiny: constants.r | 0.25 | 0.5 |"
    for cell, found in zip(row.strip("| ").split(" | ")[1:], Sweep.open(tmp_path / "sweep").results, strict=True):
        ends = 100 * found.metrics.groupby("seed")["test_accuracy"].last()
        assert cell == f"{ends.mean():.2f} ± {ends.std():.2f}"


def test_leakage_is_the_strongest_attack_beside_what_the_target_has_cost(results: Results) -> None:
    leakage = runpy.run_path(str(PLOTS / "leakage.py"))["leakage"]
    table = leakage(results, [_beside(results.folder)])
    assert list(dict.fromkeys(table["protocol"])) == list(ENTRIES)
    means = table.set_index(["measure", "protocol"])["mean"]
    views = pd.read_parquet(_beside(results.folder) / "reconstruction.parquet")
    for attacker in ("server", "server and client"):
        best = views[(views["view"] == "strongest") & (views["attacker"] == attacker)]
        for name, measure, beside in (("features", "r2", "none"), ("beyond all others'", "partial_r2", "others")):
            own = best[(best["measure"] == measure) & (best["features"] == beside)].groupby("protocol")["value"].mean()
            assert len(own)
            assert means[f"{attacker}: {name}"].to_dict() == pytest.approx(own.to_dict())
    assert means["server: features", "plain"] > 0.5 > 0.1 > means["server: control", "plain"]
    assert set(means["labels, 0 known"].index) == {"plain", "rounded"}  # the clients of the other hold the labels
    assert means["labels, 4 known", "plain"] > 0.5
    reached = results.metrics.query("protocol == 'rounded' and test_accuracy >= 0.3").iloc[0]
    assert means["time_to_target", "rounded"] == reached["time_s"]
    assert means["bytes_to_target", "rounded"] == reached[["bytes_up", "bytes_down", "bytes_peer"]].sum()


def test_leakage_is_printed_and_drawn(results: Results, tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "leakage.png"
    monkeypatch.setattr("sys.argv", ["leakage.py", str(results.folder), "--out", str(out)])
    runpy.run_path(str(PLOTS / "leakage.py"), run_name="__main__")
    assert out.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.startswith(
        "A lower bound.\n\n| protocol | time to target [s] | bytes to target [MB] |"
    )


def test_leakage_of_results_without_attacks_names_the_command(results: Results, tmp_path: Path) -> None:
    leakage = runpy.run_path(str(PLOTS / "leakage.py"))["leakage"]
    with pytest.raises(ResultsError, match="vflsim evaluate RESULTS --attack reconstruction"):
        leakage(results, [tmp_path])
