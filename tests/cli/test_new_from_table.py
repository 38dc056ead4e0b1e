"""``vflsim new --from d.csv --label y``: a scenario that runs as it is and says what the table holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import Ended

from vflsim import load, open_results, run
from vflsim.learning import data
from vflsim.scenario.models import Scenario

Vflsim = Callable[..., Ended]
ROWS = 80
RNG = np.random.default_rng(0)
NUMBERS = {f"x{column}": RNG.normal(size=ROWS).round(3) for column in range(5)}
CLASS = np.where(NUMBERS["x0"] > 0, "yes", "no")
TABLES: dict[str, dict[str, Any]] = {
    "numeric": {**NUMBERS, "y": CLASS},
    "multiclass": {**NUMBERS, "y": np.arange(ROWS) % 3},
    "regression": {**NUMBERS, "y": 1000 * NUMBERS["x0"] + 0.5},
    "amounts": {**NUMBERS, "y": RNG.permutation(ROWS) * 10},
    "missing": {**NUMBERS, "x1": [None, *NUMBERS["x1"][1:]], "x3": [*NUMBERS["x3"][:-2], None, None], "y": CLASS},
    "categorical": {
        "customer": [f"C{row:03d}" for row in range(ROWS)],
        "bank_sum": NUMBERS["x0"],
        "bank_town": RNG.choice(["Zug", "Bern", ""], ROWS),
        "shop_visits": np.arange(ROWS) % 7,
        "shop_colour": RNG.choice(["red", "a: #b, 'c'"], ROWS),
        "when": [f"2024-01-{1 + row % 28:02d}" for row in range(ROWS)],
        "note": [f"called {row} times" for row in range(ROWS)],
        "y": CLASS,
    },
    "imbalanced": {**NUMBERS, "y": ["rare" if row % 16 == 0 else "usual" for row in range(ROWS)]},
    "odd names": {"a..b": NUMBERS["x0"], " c": NUMBERS["x1"], 'd"#: e': NUMBERS["x2"], "5": NUMBERS["x3"], "y": CLASS},
    "one feature": {"x": NUMBERS["x0"], "y": CLASS},
    "many columns": {f"a_long_name_{column}_of_a_column": RNG.normal(size=ROWS).round(3) for column in range(12)}
    | {f"texts_of_column_{column}": [f"row {column} {row}" for row in range(ROWS)] for column in range(12)}
    | {"y": CLASS},
    "index of pandas": {"": range(ROWS), **NUMBERS, "y": CLASS},
    "a class of one row": {**NUMBERS, "y": ["odd", *CLASS[1:]]},
    "booleans": {"flag": CLASS == "no", **NUMBERS, "y": CLASS == "yes"},
    "few rows": {name: values[:12] for name, values in NUMBERS.items()} | {"y": CLASS[:12]},
}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(vflsim: Vflsim, table: Mapping[str, Any], *options: str, parquet: bool = False) -> str:
    file = "d.parquet" if parquet else "d.csv"
    frame = pd.DataFrame(table)
    frame.to_parquet(file, index=False) if parquet else frame.to_csv(file, index=False)
    made = vflsim("new", "--from", file, "--label", "y", *options)
    assert made.status == 0, made.err
    return Path("d.yaml").read_text() if Path("d.yaml").exists() else ""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("parquet", [False, True], ids=["csv", "parquet"])
@pytest.mark.parametrize("table", TABLES.values(), ids=[*TABLES])
def test_what_it_writes_runs_as_it_is(vflsim: Vflsim, table: Mapping[str, Any], parquet: bool) -> None:
    text = written(vflsim, table, parquet=parquet)
    results = run(load("d.yaml", ["stop={rounds: 2}"]), progress=False)
    assert not results.failed
    assert results.info["status"].tolist() == ["finished"] * 2
    assert max(map(len, text.splitlines())) <= 120


def test_the_command_runs_it_to_its_own_end(vflsim: Vflsim) -> None:
    written(vflsim, TABLES["categorical"])
    ended = vflsim("run", "d.yaml", "--no-report")
    assert ended.status in (0, None), ended.err
    assert {run.info.stop_reason for run in open_results("results/d").runs} == {"epochs"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("table", TABLES.values(), ids=[*TABLES])
def test_what_stands_behind_a_hash_is_the_default(vflsim: Vflsim, table: Mapping[str, Any]) -> None:
    """Without its hash, each such line leaves the scenario as it is."""
    text = written(vflsim, table)
    scenario, found = load("d.yaml"), 0
    for line in re.finditer(r"^( *)# ([a-z_]+: (?:auto|null|\[\S*\]|\{\}|[a-z0-9.]+)) # .*$", text, re.MULTILINE):
        Path("e.yaml").write_text(f"{text[: line.start()]}{line[1]}{line[2]}{text[line.end() :]}")
        changed = load("e.yaml")
        assert changed == scenario or line[2] == "test_fraction: 0.2", line[0]
        found += 1
    assert found >= 18


def test_keys_that_a_user_may_want_are_all_there(vflsim: Vflsim) -> None:
    """Every section, and every key of ``data`` for one file, are in the text."""
    text = written(vflsim, TABLES["numeric"])
    keys = {*re.findall(r"^ *(?:# )?([a-z_]+):", text, re.MULTILINE)}
    of_data = type(load("d.yaml").data).model_fields.keys()
    assert of_data - keys == {"parties", "align", "labels", "split", "noise"}
    assert Scenario.model_fields.keys() - keys == {"constants", "modules"}


def data_of(text: str, key: str) -> str:
    found = re.search(rf"^  ((?:# )?{key}: .*)$", text, re.MULTILINE)
    assert found, key
    return found[1]


def test_kinds_of_columns_are_told_beside_the_keys_that_deal_with_them(vflsim: Vflsim) -> None:
    text = written(vflsim, TABLES["categorical"])
    told = (
        "numbers (2): bank_sum, shop_visits; categories (2): bank_town, shop_colour; ids (1): customer; texts (1): note"
    )
    assert told in text.replace("\n# ", " ")
    assert data_of(text, "id") == "id: customer # another value in each row: no feature"
    assert data_of(text, "drop") == "drop: [when, note] # no features: when, note"
    assert data_of(text, "categorical").startswith(
        "categorical: [bank_town, shop_colour] # texts that repeat: bank_town"
    )
    assert load("d.yaml").partition.columns == (("bank_sum", "bank_town"), ("shop_visits", "shop_colour"))
    assert load("d.yaml").partition.names == ("bank", "shop")
    assert "those whose names begin alike" in text


def test_empty_cells_are_counted_beside_what_fills_them(vflsim: Vflsim) -> None:
    text = written(vflsim, TABLES["missing"])
    assert "  # empty cells: x1 (1 rows), x3 (2 rows)\n  missing: mean # or zero, indicator\n" in text
    Path("d.yaml").unlink()
    assert data_of(written(vflsim, TABLES["numeric"]), "missing").startswith("# missing: null # no number is missing")


def test_columns_without_a_shared_beginning_are_cut_into_halves(vflsim: Vflsim) -> None:
    text = written(vflsim, TABLES["numeric"])
    assert "- [x0..x2]\n    - [x3, x4]\n" in text
    assert "half of them each" in text


def test_a_rare_class_is_named_beside_the_metric_and_the_loss_that_see_it(vflsim: Vflsim) -> None:
    text = written(vflsim, TABLES["imbalanced"])
    assert data_of(text, "label") == "label: y # 2 classes, the rarest first: rare (5 rows), usual (75 rows)"
    assert "# 6.2% of the rows are of class rare: accuracy hides" in text
    assert "{kind: focal}" in text
    assert "test_f1" in run(load("d.yaml", ["stop={rounds: 2}"]), progress=False).metrics
    Path("d.yaml").unlink()
    assert "focal" not in written(vflsim, TABLES["numeric"])


@pytest.mark.parametrize(
    ("table", "task", "told"),
    [
        ("numeric", "binary", "# task: auto # binary, by the labels"),
        ("multiclass", "multiclass", "# task: auto # multiclass, by the labels"),
        ("regression", "regression", "# task: auto # regression, by the labels"),
        ("amounts", "regression", "task: regression # so many whole numbers are taken for amounts"),
    ],
)
def test_the_task_is_told(vflsim: Vflsim, table: str, task: str, told: str) -> None:
    text = written(vflsim, TABLES[table])
    assert data_of(text, "task").startswith(told)
    scenario = load("d.yaml")
    assert data.load(scenario.data, scenario.partition).task == task


def test_name_and_file_are_as_said_and_paths_begin_at_the_scenario(vflsim: Vflsim) -> None:
    Path("inside").mkdir()
    written(vflsim, TABLES["numeric"], "--out", "inside/mine.yaml")
    scenario = load("inside/mine.yaml")
    assert scenario.name == "mine"
    assert Path(str(scenario.data.file)).samefile("d.csv")
    assert '  file: "../d.csv"\n' in Path("inside/mine.yaml").read_text()
    assert vflsim("new", "other", "--from", "d.csv", "--label", "y", "--out", "inside/other.yaml").status == 0
    assert load("inside/other.yaml").name == "other"
    assert vflsim("new", "--from", "quickstart", "--out", "inside/third.yaml").status == 0
    assert load("inside/third.yaml").name == "third"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "d.csv"], r"--label is not said[\s\S]*allowed: 'x0', 'x1'[\s\S]*vflsim new --from d.csv --label"),
        (["--from", "d.csv", "--label", "z"], r"d\.csv: has no column 'z' \(the label\)"),
        (["--from", "none.csv", "--label", "y"], r"none\.csv: no such file"),
        (["--from", "d.npz", "--label", "y"], r"cannot tell the format from '\.npz'"),
        (["--from", "quickstart", "--label", "y"], r"--label: there is no table"),
        (["mine", "--label", "y"], r"--label: there is no table"),
        ([], r"the scenario has no name"),
        (["--from", "same.csv", "--label", "y"], r"all 3 rows have the same label"),
        (["--from", "texts.csv", "--label", "y"], r"no column besides the label is a number that differs"),
        (["my/own", "--from", "d.csv", "--label", "y", "--out", "e.yaml"], r"cannot name a folder of results"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(vflsim: Vflsim, words: list[str], message: str) -> None:
    pd.DataFrame(TABLES["numeric"]).to_csv("d.csv", index=False)
    Path("same.csv").write_text("x,y\n1,a\n2,a\n3,a\n")
    Path("texts.csv").write_text("x,y\none a,1\ntwo b,2\nthree c,1\n")
    ended = vflsim("new", *words)
    assert ended.status == 2
    assert re.search(message, ended.err)
    assert not [*Path().glob("*.yaml")]


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [(range(80), True), (range(1, 81), True), (range(1940, 2020), False), ([*range(79), 5], False)],
)
def test_a_count_of_the_rows_is_no_feature_under_any_name(vflsim: Vflsim, numbers: list[int], counts: bool) -> None:
    text = written(vflsim, {"member": [*numbers], **NUMBERS, "y": CLASS})
    assert ("\n  id: member #" in text) == counts
    assert ("member" in load("d.yaml").partition.columns[0][0]) != counts
