"""The tables of what messages give away: ``plots/leakage_tables.py``."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
from attacked_runs import finished

from vflsim.attacks import chosen, evaluate, save
from vflsim.errors import ResultsError
from vflsim.results import Results

SCRIPT = Path(__file__).parents[2] / "plots" / "leakage_tables.py"
ENTRIES = {
    "plain": {"kind": "synchronous"},
    "logits": {"kind": "agg_vfl", "models": {"aggregate": "mean"}},
    "c-vfl": {"kind": "c_vfl", "local_steps": 1},
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs of two seeds that were attacked; the server holds features, and the clients of one protocol the labels."""
    out = tmp_path_factory.mktemp("tables") / "study"
    results = finished(
        ENTRIES,
        out,
        record={"tables": "summary", "views": {"rows": 200, "keep": "all"}},
        data={"name": "digits", "train_rows": 200},
        stop={"rounds": 12},
        evaluate={"every": "12 rounds"},
        seeds=[0, 1],
    )
    said = ["reconstruction.method=linear", "reconstruction.client=1"]
    save(evaluate(results, chosen(["reconstruction", "label_inference"], said)), _beside(out))
    return results


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-evaluated")


def test_an_attacker_has_the_view_that_shows_most(study: Results) -> None:
    table = runpy.run_path(str(SCRIPT))["features"](study, _beside(study.folder)).set_index(["protocol", "attacker"])
    assert list(table.index) == [(name, who) for name in ENTRIES for who in ("server", "client")]
    found = pd.read_parquet(_beside(study.folder) / "reconstruction.parquet")
    found["value"] = found["value"].where(found["measure"] == "r2")
    for (protocol, attacker), row in table.iterrows():
        own = found[(found["protocol"] == protocol) & (found["attacker"] == attacker)]
        means = own.groupby(["view", "epochs", "features"])["value"].mean()
        assert means.loc[:, "all", "none"].idxmax() == row["view"]
        assert row["all epochs"] == pytest.approx(means.loc[row["view"], "all", "none"])
        assert row["last view"] == pytest.approx(means.loc[row["view"], "last", "none"])
        assert row["and own features"] == pytest.approx(means.loc[row["view"], "last", "own"])
        assert row["and own features "] == pytest.approx(means.loc[row["view"], "all", "own"])
    assert table.loc[("plain", "server"), "all epochs beyond"] > 0.5
    assert 0 < table.loc[("plain", "server"), "own features alone"] < table.loc[("plain", "server"), "all epochs"]


def test_labels_are_by_method_and_what_does_not_apply_is_absent(study: Results) -> None:
    table = runpy.run_path(str(SCRIPT))["labels"](study, _beside(study.folder)).set_index("protocol")
    assert list(table.index) == list(ENTRIES)
    assert list(table)[:3] == ["sign", "clusters", "clusters by chance"]
    assert table["sign"].isna().to_dict() == {"plain": True, "logits": False, "c-vfl": True}
    assert table.loc["logits", "sign"] == 1
    assert table.loc["c-vfl"].notna().to_dict() == {name: name in ("completion", "untrained") for name in table}


def test_tables_are_printed(
    study: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["leakage_tables.py", str(study.folder)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "study: features, R²"
    assert lines[2].startswith("| protocol | attacker | view | own features alone | last view | and own features | all")
    assert "study: labels" in lines
    assert "-0.00" not in "".join(lines)


def test_another_probe_has_a_table_of_features_alone(
    study: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["reconstruction.method=kernel", "reconstruction.features=none", "reconstruction.client=1"]
    save(evaluate(study, chosen(["reconstruction"], said)), tmp_path / "kernel")
    arguments = [str(study.folder), "--evaluated", str(tmp_path / "kernel"), "--method", "kernel"]
    monkeypatch.setattr("sys.argv", ["leakage_tables.py", *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    found = pd.read_parquet(tmp_path / "kernel" / "reconstruction.parquet").query("method == 'kernel'")
    means = found.query("protocol == 'plain' and attacker == 'server'").groupby(["view", "epochs"])["value"].mean()
    row = next(line for line in lines if line.startswith("| plain | server |"))
    assert f"| {means[row.split(' | ')[2], 'all']:.2f} |" in row
    assert "study: labels" not in lines


def test_every_result_has_its_attacks(study: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [str(study.folder), "--evaluated", "one", "--evaluated", "another"]
    monkeypatch.setattr("sys.argv", ["leakage_tables.py", *arguments])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_results_without_attacks_name_the_command(study: Results, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="vflsim evaluate RESULTS --attack reconstruction"):
        runpy.run_path(str(SCRIPT))["features"](study, tmp_path)
