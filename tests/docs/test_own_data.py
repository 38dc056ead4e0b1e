"""The page about your own data: its example runs on files as it describes them, and labels stay with their rows."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import Ended
from pages import ROOT, code_of

import vflsim as package
from vflsim import open_results

CUSTOMERS, SHARED = 700, 400
PAGE = ROOT / "docs" / "own-data.md"
BY_COLUMNS, SCENARIO = (block for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S) if "name:" in block)


def test_one_file_is_cut_by_named_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(code_of(PAGE)[0])
    Path("by-columns.yaml").write_text(BY_COLUMNS)
    scenario = package.load("by-columns.yaml")
    parties = package.learning.data.load(scenario.data, scenario.partition).parties
    assert [party.feature_names for party in parties] == [("colour", "age", "balance"), ("visits", "spent")]
    shown = vflsim("check", "by-columns.yaml", "--quick").out
    assert "loans.csv, 480 train, 120 test rows, 5 features (1 categorical) at 2 clients" in shown


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Files with shuffled ids, of which 400 are in both: the label is red xor visits > 0, and neither tells alone."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "customer": [f"C{number:04d}" for number in rng.permutation(10_000)[:CUSTOMERS]],
            "colour": rng.permutation(["red", "red", "green", "blue"] * (CUSTOMERS // 4)),
            "balance": np.where(rng.random(CUSTOMERS) < 0.1, np.nan, rng.normal(800, 200, CUSTOMERS)).round(1),
            "visits": rng.choice([-1, 1], CUSTOMERS) * rng.uniform(0.3, 2, CUSTOMERS).round(2),
            "spent": rng.normal(30, 10, CUSTOMERS).round(1),
        }
    )
    people["repaid"] = ((people["colour"] == "red") ^ (people["visits"] < 0)).astype(int)
    bank = people[:550][["customer", "colour", "balance", "repaid"]].sample(frac=1, random_state=1)
    shop = people[150:][["customer", "visits", "spent"]].sample(frac=1, random_state=2)
    assert bank.groupby("colour")["repaid"].mean().between(0.4, 0.6).all()
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(SCENARIO)
    bank.to_csv("bank.csv", index=False)
    shop.to_csv("shop.csv", index=False)
    return bank, shop


def accuracies() -> list[float]:
    runs = open_results("results/own")
    return [runs.run(name, 0).table("metrics").to_pandas()["test_accuracy"].iloc[-1] for name in ("wait", "async")]


@pytest.mark.slow
def test_the_example_learns_what_both_know_together(tables: object, vflsim: Callable[..., Ended]) -> None:
    shown = vflsim("check", "own.yaml").out
    assert "rows: 400 ids stand in both files (align: inner); left out: 150 of 550 in bank.csv, 150 of 550 in" in shown
    assert "missing values (indicator): fills 'balance' of client-1 (" in shown
    assert "categories of training rows: 'colour' of client-1: " in shown
    assert vflsim("run", "own.yaml").status in (0, None)
    assert min(accuracies()) > 0.95
    data = open_results("results/own").run("wait", 0).info.data
    assert data["alignment"]["rows"] == SHARED
    assert sorted(data["categories"][0]["categories"]) == ["blue", "green", "red"]
    assert data["missing"][0]["column"] == "balance"


@pytest.mark.slow
def test_ids_that_go_astray_teach_nothing(
    tables: tuple[pd.DataFrame, pd.DataFrame], vflsim: Callable[..., Ended]
) -> None:
    """The control: with another customer's visits in every row, the accuracy is that of a coin."""
    _, shop = tables
    shop.assign(customer=np.roll(shop["customer"], 1)).to_csv("shop.csv", index=False)
    assert vflsim("run", "own.yaml").status in (0, None)
    assert max(accuracies()) < 0.7


@pytest.mark.slow
def test_with_outer_the_bank_keeps_customers_whom_the_shop_lacks(tables: object, vflsim: Callable[..., Ended]) -> None:
    assert vflsim("run", "own.yaml", "--set", "data.align=outer").status in (0, None)
    data = open_results("results/own").run("wait", 0).info
    assert sum(data.rows.values()) == 550
    assert data.data["alignment"]["files"][1] == {"file": "shop.csv", "rows": 550, "used": SHARED}
    assert 0.7 < min(accuracies()) <= max(accuracies()) < 0.95  # 8 of 11 customers are known to both


@pytest.mark.parametrize("align", ["inner", "outer"])
def test_every_label_stays_with_its_row(tables: object, align: str, tmp_path: Path) -> None:
    """What each party holds of a row determines its label exactly, in every split, whatever the order of the files."""
    scenario = package.load("own.yaml", [f"data.align={align}", "data.scale=none", "data.validation_fraction=0.2"])
    loaded = package.learning.data.load(scenario.data, scenario.partition, "float64", tmp_path)
    for split in ("train", "validation", "test"):
        ours, theirs = (getattr(party, split) for party in loaded.parties)
        here = np.ones(len(ours), bool) if loaded.present is None else getattr(loaded.present, split)[:, 1]
        red = ours[:, loaded.parties[0].feature_names.index("colour=red")] == 1
        visits = theirs[:, loaded.parties[1].feature_names.index("visits")]
        labels = getattr(loaded.labels, split) == 1
        np.testing.assert_array_equal(labels[here], (red ^ (visits < 0))[here])
        assert here.all() == (align == "inner")
