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
WHO = ("server", "client", "two clients", "clients", "server and client")
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


def test_an_attacker_is_the_strongest(study: Results) -> None:
    table = runpy.run_path(str(SCRIPT))["features"](study, _beside(study.folder)).set_index(["protocol", "attacker"])
    assert list(table.index) == [(name, who) for name in ENTRIES for who in WHO]
    found = pd.read_parquet(_beside(study.folder) / "reconstruction.parquet").query("view == 'strongest'")
    for (protocol, attacker), row in table.iterrows():
        own = found[(found["protocol"] == protocol) & (found["attacker"] == attacker)]
        means = own.groupby(["measure", "features"])[["value", "chance"]].mean()
        assert row["from messages"] == pytest.approx(means.loc[("r2", "none"), "value"])
        assert row["both"] == pytest.approx(means.loc[("r2", "own"), "value"])
        assert row["own features"] == pytest.approx(means.loc[("r2", "own"), "chance"])
        assert row["beyond all others'"] == pytest.approx(means.loc[("partial_r2", "others"), "value"])
        assert row["control"] < 0.1
        assert row["chosen"] in set(own["chosen"])
    assert table.loc[("plain", "server"), "beyond all others'"] > 0.5
    assert 0 < table.loc[("plain", "server"), "own features"] < table.loc[("plain", "server"), "from messages"]


def test_labels_stand_beside_chance_and_features_alone(study: Results) -> None:
    table = runpy.run_path(str(SCRIPT))["labels"](study, _beside(study.folder)).set_index(["protocol", "attacker"])
    assert list(table)[:4] == ["0 known", "by chance, 0", "4 known", "by chance, 4"]
    assert table["0 known"].isna().to_dict()[("c-vfl", "client")]  # the clients hold the labels
    assert table.loc[("logits", "client"), "0 known"] == 1
    assert (table["4 known"] > table["by chance, 4"] + 0.2).all()
    assert (table.loc["plain", "4 known"] > table.loc["plain", "untrained"]).all()


def test_tables_are_printed(
    study: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["leakage_tables.py", str(study.folder)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "study: features, R², a lower bound"
    assert lines[2].startswith("| protocol | attacker | from messages | own features | both | beyond own | all others'")
    assert "study: labels, a lower bound" in lines
    assert "-0.00" not in "".join(lines)


def test_every_result_has_its_attacks(study: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [str(study.folder), "--evaluated", "one", "--evaluated", "another"]
    monkeypatch.setattr("sys.argv", ["leakage_tables.py", *arguments])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_results_without_attacks_name_the_command(study: Results, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="vflsim evaluate RESULTS --attack reconstruction"):
        runpy.run_path(str(SCRIPT))["features"](study, tmp_path)
