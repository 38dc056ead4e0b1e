"""A measure, of vflsim or by path, is a column of the summary like the others, from ``run.json`` alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import Ended
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from tiny_worlds import RANDOM_TIMING, data_of, metrics, raw, rounds, run, tiny

import vflsim
from vflsim.errors import ScenarioError
from vflsim.results.read import Results
from vflsim.results.tables import comparison_table
from vflsim.scenario.resolve import run_text
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised.run import run_vectorised
from vflsim.studies.checks.data import read_and_check


def own(path: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_measures:{path}", **keys}


MEASURES: dict[str, Any] = {
    "longest": own("LongestRound"),
    "uploads": own("Messages"),
    "slow_round": {"kind": "round_quantile", "level": 0.9},
    "best_accuracy": {"kind": "best", "metric": "test_accuracy", "better": "higher"},
}
PROTOCOLS = {"wait": {"kind": "synchronous"}, "two": {"kind": "ignore", "fastest": 2}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    scenario = vflsim.load(raw(PROTOCOLS, measures=MEASURES, seeds=[0, 1, 2], record="events"))
    return vflsim.run(scenario, out=tmp_path_factory.mktemp("measures") / "out")


def test_each_run_keeps_its_values(results: Results) -> None:
    said = json.loads((results.folder / "two/seed-2/run.json").read_text())["measures"]
    stored = next(each for each in results.runs if (each.protocol, each.seed) == ("two", 2))
    frame, scores = stored.frame("rounds"), stored.frame("metrics")
    lasted = frame["end_s"] - frame["start_s"]
    assert said["longest"] == {"value": pytest.approx(lasted.max()), "unit": "s"}
    assert said["slow_round"]["value"] == pytest.approx(lasted.quantile(0.9))
    assert said["best_accuracy"] == {"value": scores["test_accuracy"].max(), "unit": ""}
    assert said["uploads"]["value"] == (stored.frame("events")["kind"] == "upload").sum() > 0


def test_the_summary_estimates_them_over_seeds_and_in_pairs(results: Results) -> None:
    estimates = results.estimates()
    longest = estimates[estimates["measure"] == "longest"]
    values = {
        name: [run.info.measures["longest"].value or 0.0 for run in results.runs if run.protocol == name]
        for name in PROTOCOLS
    }
    for name, of_runs in values.items():
        (row,) = longest[(longest["protocol"] == name) & longest["baseline"].isna()].to_dict("records")
        assert row["n"] == 3
        assert row["mean"] == pytest.approx(sum(of_runs) / 3)
        assert row["low"] < row["mean"] < row["high"]
    (pair,) = longest[longest["baseline"].notna()].to_dict("records")
    assert abs(pair["mean"]) == pytest.approx(abs(sum(values["wait"]) - sum(values["two"])) / 3)
    stored = pd.read_parquet(results.folder / "summary.parquet")
    assert set(MEASURES) <= set(stored["measure"])


@pytest.mark.slow
def test_they_stand_in_tables_and_report_without_the_class(
    results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.setitem(sys.modules, "own_measures", None)
    again = Results.open(results.folder)
    assert {"longest", "slow round", "best accuracy", "uploads"} <= set(comparison_table(again).header)
    assert "| longest |" in (results.folder / "summary.md").read_text()
    ended = vflsim("report", results.folder, "--out", tmp_path / "page.html")
    assert ended.status == 0, ended.err
    assert "slow round" in (tmp_path / "page.html").read_text()


def test_results_without_measures_are_as_before() -> None:
    with_, without = run(tiny("synchronous", measures=MEASURES)), run(tiny("synchronous"))
    assert metrics(with_).equals(metrics(without))
    assert rounds(with_).equals(rounds(without))
    assert without.info.measures == {}
    assert "own_measures" in run_text(tiny("synchronous", measures=MEASURES), "synchronous")
    assert run_text(tiny("synchronous"), "synchronous") == run_text(tiny("synchronous", measures={}), "synchronous")


def test_tables_that_are_not_recorded_give_no_value() -> None:
    outcome = run(tiny("synchronous", measures=MEASURES, record="summary"))
    assert outcome.info.measures["longest"].value is None
    assert outcome.info.measures["best_accuracy"].value is not None


def test_the_vectorised_path_measures_the_same() -> None:
    few = {name: MEASURES[name] for name in ("longest", "slow_round")}
    timing = {**RANDOM_TIMING, "network": "dedicated"}
    scenario = tiny({"it": {"kind": "synchronous"}}, measures=few, timing=timing, record="rounds", stop={"rounds": 40})
    event, arrays = run(scenario, "it", timing_only=True), run_vectorised(scenario, "it", 0, data_of(scenario))
    assert event.info.measures == arrays.info.measures != {}


def test_a_measure_that_fails_late_loses_no_tables() -> None:
    scenario = tiny("synchronous", measures={"late": own("LateFailure")}, stop={"rounds": 12})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario))
    assert outcome.info.status == "failed"
    assert "the measure LateFailure fails: LookupError: many rounds" in str(outcome.info.error)
    assert len(rounds(outcome)) == 12


WRONG = {
    "Text": (r"Text\.value returned a str(.|\n)*one number", "value"),
    "Infinite": (r"Infinite\.value is inf(.|\n)*NaN for none", "value"),
    "Random": (r"Random\.value draws from Python's global generator for the same tables", "value"),
    "Writes": (r"Writes\.value changes what it is given for the same tables(.|\n)*copy it", "value"),
    "F9": (r"F9 fails: KeyError: 'test_f9'(.|\n)*own_measures\.py:\d+, value", "mend it"),
    "Column": (r"there is no column 'test_f9'(.|\n)*test_accuracy", "choose one"),
    "NoUnit": (r"NoUnit\.unit is None(.|\n)*a text", "unit"),
    "NeedsRounds": (r"NeedsRounds fails: TypeError(.|\n)*own_measures\.py:\d+, value", "mend it"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_measure_is_told_before_anything_runs(name: str, tmp_path: Path) -> None:
    section = [f"measures: {{it: {entry('own_measures', name)}}}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "measures.it", WRONG[name], read_and_check)


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ({"rounds": own("LongestRound")}, r"'rounds' cannot name a measure"),
        ({"end_it": own("LongestRound")}, r"'end_it' cannot name a measure"),
        ({"a": {"kind": "median"}}, r"there is no kind 'median'(.|\n)*round_quantile, best"),
        ({"a": {"kind": "module", "path": "own_measures:math"}}, r"no Measure(.|\n)*derive it from"),
    ],
)
def test_a_mistake_with_measures_is_told_at_load(measures: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        tiny("synchronous", measures=measures)
