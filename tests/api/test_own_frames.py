"""``vflsim.run(frame=…)``: data in one frame, parties by names of columns."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vflsim
from vflsim.errors import DataError, ScenarioError, VflsimError

PARTIES = {"bank": ["age", "sum"], "shop": ["visits", "town"]}
RULES = {"client_optimizer": {"kind": "sgd", "lr": 0.1}, "server_optimizer": {"kind": "sgd", "lr": 0.1}}
SHORT = {"stop": {"rounds": 6}}


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """100 rows in an empty folder; the label is age + visits > 0."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=100) for name in ("age", "sum", "visits")})
    frame["town"] = rng.choice(["Bern", "Zug"], 100)
    frame["note"] = [f"about number {row}" for row in range(100)]
    frame["y"] = (frame["age"] + frame["visits"] > 0).astype(int)
    return frame


def run(frame: Any, said: Any = SHORT, **others: Any) -> vflsim.trained.models.StudyResults:
    return vflsim.run(said, frame=frame, **{"label": "y", "progress": False, **others})


def test_a_frame_trains_as_the_scenario_that_says_the_same(people: pd.DataFrame) -> None:
    """The oracle is a scenario written by hand about the same columns in a CSV file."""
    people.to_csv("people.csv", index=False)
    model = {"kind": "mlp", "hidden": [16], "embedding": 8}
    written = {
        "name": "written",
        "data": {"file": "people.csv", "label": "y", "categorical": ["town"], "drop": ["note"]},
        "partition": {"by": "explicit", "columns": [["visits", "town"], ["age", "sum"]], "active": True},
        "models": {
            "client": model,
            "active": model,
            "aggregate": "concat",
            "server": {"kind": "mlp", "hidden": [16]},
        },
        "training": {
            "batch": 32,
            "client_optimizer": {"kind": "adam", "lr": 0.01},
            "server_optimizer": {"kind": "adam", "lr": 0.01},
        },
        "timing": {
            "server": {"compute": "1 ms"},
            "clients": {"compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "20 ms"}},
        },
        "protocols": {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}},
        "stop": {"rounds": 6},
        "evaluate": {"every": "2 rounds"},
    }
    theirs = vflsim.run(written, progress=False)
    ours = run(people, parties=PARTIES, active="shop")
    assert ours.protocols == ("wait", "async")
    pd.testing.assert_frame_equal(ours.metrics, theirs.metrics)


def test_it_learns_what_two_parties_know_together(people: pd.DataFrame) -> None:
    results = run(people, {"stop": {"epochs": 40}}, parties=PARTIES, protocols=["synchronous"])
    assert results.protocols == ("synchronous",)
    assert results.metrics["test_accuracy"].iloc[-1] > 0.85


class Convertible:
    """A frame of another library."""

    def __init__(self, table: pa.Table) -> None:
        self.to_arrow = lambda: table


class OnlyPandas:
    """A frame that knows pandas alone."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.to_pandas = frame.copy


def polars_of(frame: pd.DataFrame) -> Any:
    import polars

    return polars.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def csv_of(frame: pd.DataFrame) -> str:
    frame.to_csv("some.csv", index=False)
    return "some.csv"


def parquet_of(frame: pd.DataFrame) -> Path:
    frame.to_parquet("some.parquet", index=False)
    return Path("some.parquet")


FORMS: tuple[Callable[[pd.DataFrame], Any], ...] = (
    csv_of, parquet_of, OnlyPandas, polars_of, lambda frame: Convertible(pa.Table.from_pandas(frame))
)  # fmt: skip


def test_every_form_of_a_frame_gives_the_same_metrics(people: pd.DataFrame) -> None:
    expected = run(people, out="pandas", parties=PARTIES).metrics
    for number, form in enumerate(FORMS):
        if form is polars_of and find_spec("polars") is None:
            continue
        metrics = run(form(people), out=f"other-{number}", parties=PARTIES).metrics
        pd.testing.assert_frame_equal(metrics, expected, obj=f"form {number}")


def test_a_column_called_like_a_method_and_names_that_are_numbers_are_columns(people: pd.DataFrame) -> None:
    odd = people.rename(columns={"age": "to_arrow", "sum": 0, "visits": 1.5})
    results = run(odd, parties={"bank": ["to_arrow", 0], "shop": [1.5]}, protocols=["synchronous"])
    assert results.scenario["partition"]["columns"] == [["to_arrow", "0"], ["1.5"]]


def test_without_parties_columns_are_dealt_and_texts_that_do_not_repeat_are_left_out(people: pd.DataFrame) -> None:
    results = run(people)
    assert results.scenario["partition"]["columns"] == [["age", "sum"], ["visits", "town"]]
    assert results.scenario["data"]["drop"] == ["note"]


def test_a_partition_that_is_said_holds_with_its_ranges(people: pd.DataFrame) -> None:
    columns = [["age..visits"], ["town"]]
    said = {**SHORT, "partition": {"by": "explicit", "columns": columns}, "data": {"drop": ["sum"]}}
    results = run(people, said, protocols="synchronous")
    assert results.scenario["data"]["drop"] == ["sum", "note"]
    assert results.scenario["partition"]["columns"] == columns


def test_what_is_said_is_not_changed(people: pd.DataFrame) -> None:
    said = {"data": {"scale": "minmax"}, **SHORT}
    run(people, said, protocols="synchronous")
    assert said == {"data": {"scale": "minmax"}, **SHORT}


def test_a_second_mistake_with_the_same_frame_still_names_it(people: pd.DataFrame) -> None:
    run(people, parties=PARTIES, timing_only=True)
    files = [*Path("results").iterdir()]
    with pytest.raises(ScenarioError, match=r"^training\.batch: a batch of 90 rows"):
        run(people, {"training": {**RULES, "batch": 90}, **SHORT}, parties=PARTIES)
    with pytest.raises(DataError, match=r"^frame, column 'age': there are 100 different labels"):
        run(people, {"data": {"task": "binary"}, **SHORT}, label="age")
    assert sorted(Path("results").iterdir()) == sorted(files)


def test_the_sections_of_a_scenario_take_the_place_of_defaults(people: pd.DataFrame) -> None:
    said = {"name": "mine", "data": {"test_fraction": 0.5, "task": "binary"}, "seeds": [3], **SHORT}
    results = run(people, said, parties=PARTIES, protocols={"slow": {"kind": "t_synchronous", "t": 1}})
    assert (results.folder, results.protocols, results.seeds) == (Path("results/mine"), ("slow",), (3,))
    assert results.run("slow", 3).info.rows["test"] == 50


def test_a_scenario_by_name_keeps_all_but_its_data(people: pd.DataFrame) -> None:
    results = run(people, vflsim.load("quickstart", ["stop={rounds: 3}", "target=null"]), parties=PARTIES,
                  protocols=["wait", "synchronous"])  # fmt: skip
    assert results.protocols == ("wait", "synchronous")
    assert results.scenario["models"] == vflsim.load("quickstart").document.raw["models"]


def test_a_frame_is_kept_beside_its_results_and_its_runs_are_kept(people: pd.DataFrame) -> None:
    first = run(people, parties=PARTIES)
    (file,) = Path("results").glob("frame-*.parquet")
    assert pd.read_parquet(file).equals(people)
    written = {path: path.stat().st_mtime_ns for path in first.folder.rglob("run.json")}
    run(people, parties=PARTIES)
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("run.json")} == written
    assert vflsim.verify(first.folder, rerun=True, protocols=["wait"]) == []
    run(people.assign(age=0.5 * people["age"]), parties=PARTIES)
    assert len([*Path("results").glob("frame-*.parquet")]) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parties": {"bank": ["aeg"]}}, r"parties: bank: there is no column 'aeg'\n  allowed: 'age', .*\n.*'age'\?"),
        ({"parties": {"a": ["age"], "b": ["age"]}}, r"parties: b: the column 'age' stands at 'a', too"),
        ({"parties": {"a": ["age", "age"]}}, r"parties: a: the column 'age' stands twice"),
        ({"parties": {"a": ["y"]}}, r"parties: a: 'y' is the label\n  allowed: columns of features"),
        ({"parties": {"a": ["age"], "b": []}}, r"parties: b: holds no columns"),
        ({"parties": {"a": ["note"]}}, r"'note' is text with 100 different values in 100 rows[\s\S]*'categorical'"),
        ({"parties": {}}, r"parties: there is no client"),
        ({"parties": {"a": ["age"]}, "active": "a"}, r"parties: there is no client: no party besides the active one"),
        ({"parties": PARTIES, "active": "bnak"}, r"active: there is no party 'bnak'\n  allowed: 'bank', 'shop'"),
        ({"active": "bank"}, r"active is 'bank', but no parties are named"),
        ({"label": None}, r"frame: label is not said: .*\n  allowed: 'age', "),
        ({"label": "z"}, r"frame: has no column 'z' \(the label\)"),
        ({"protocols": ["synchronos"]}, r"synchronos[\s\S]*did you mean 'synchronous'"),
        ({"protocols": "synchronos"}, r"synchronos[\s\S]*did you mean 'synchronous'"),
        ({"said": {"training": {"batch": 7}}}, r"training\.client_optimizer"),
        ({"said": {"name": "a/b"}}, r"'a/b' cannot name a folder of results"),
        ({"said": {"data": "age"}}, r"data: 'age' is no section"),
        ({"said": {"data": {"drop": ["z"]}}}, r"frame: has no column 'z' to drop"),
        ({"said": {"data": {"categorical": "town"}}}, r"data\.categorical"),
        ({"said": {"data": {"categorical": ["z"]}}}, r"frame: has no categorical column 'z'"),
        ({"parties": ["age"]}, r"parties are a list"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_what_is_allowed(people: pd.DataFrame, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ScenarioError, DataError), match=message):
        run(people, **changes)
    assert [*Path().iterdir()] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": np.nan}, r"frame: row 1, column 'age' is nan[\s\S]*`missing: mean`"),
        ({"y": 1}, r"frame, column 'y': all 100 rows have the same label, 1\n  allowed: at least two different labels"),
        ({"y": None}, r"frame: row 1, column 'y' \(the label\) is empty"),
        ({"age": [1, "a"] * 50}, r"frame: cannot be read as columns[\s\S]*one type"),
    ],
)
def test_values_that_cannot_be_learnt_are_named(people: pd.DataFrame, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(people.assign(**change), parties=PARTIES)
    assert [*Path().iterdir()] == []


def test_gaps_are_filled_by_the_rule_that_is_said(people: pd.DataFrame) -> None:
    holed = people.assign(age=people["age"].where(people.index % 10 != 0))
    results = run(holed, {**SHORT, "data": {"missing": "mean"}}, parties=PARTIES, protocols=["synchronous"])
    (filled,) = results.run("synchronous", 0).info.data["missing"]
    assert (filled["party"], filled["column"], filled["train"] + filled["test"]) == ("bank", "age", 10)
    assert vflsim.verify(results.folder) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": "y"}, r"label says what a frame holds, and there is none"),
        ({}, r"there is nothing to run"),
        ({"scenario": "quickstart", "protocols": {"a": {"kind": "synchronous"}}}, r"protocols are entries"),
        ({"frame": 3, "label": "y"}, r"a int is no frame\n  allowed: a frame of pandas or polars"),
        ({"frame": "a.txt", "label": "y"}, r"cannot tell the format from '\.txt'"),
        ({"frame": "a.csv", "label": "y"}, r"a\.csv: no such file"),
        ({"frame": pd.DataFrame({"y": []}), "label": "y"}, r"frame: holds no rows"),
    ],
)
def test_calls_that_say_too_little_or_too_much(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(VflsimError, match=message):
        vflsim.run(**arguments)
