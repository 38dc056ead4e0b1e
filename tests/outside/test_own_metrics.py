"""A metric is one class, of vflsim or by path: runs, targets, tables, figures and checks know it from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from ruamel.yaml import YAML
from tiny_worlds import metrics, raw, run, tiny

import vflsim
from vflsim.errors import ResultsError, RunError, ScenarioError
from vflsim.plotting import PLOTS
from vflsim.results.verify import verify_run
from vflsim.scenario.resolve import run_text
from vflsim.studies.runs.identity import ends_alike
from vflsim.vocabulary.targets import Target

F2: dict[str, Any] = {"kind": "module", "path": "own_metrics:FBeta", "beta": 2}
HEADS = {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}
OWN: dict[str, Any] = {
    "f1": {"kind": "module", "path": "own_metrics:FBeta"},
    "f2": F2,
    "wrong": {"kind": "module", "path": "own_metrics:Wrong"},
    "macro": "macro_f1",
}
PROTOCOLS = {
    "wait": {"kind": "synchronous"},
    "coded": {"kind": "fedvs", "K": 1, "T": 1},
    "every": {"kind": "easter"},
    "admm": {"kind": "vimadmm", "rho": 1, "local_steps": 2, "models": HEADS},
    "mine": {"kind": "module", "path": "outside_protocols.three_tensors:ThreeTensors", "models": {"aggregate": "sum"}},
}
LINEAR = {"models__server": {"kind": "linear"}}
Vflsim = Callable[..., Ended]


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "s.yaml"
    YAML(typ="safe").dump(raw({"wait": {"kind": "synchronous"}}, **changes), path)
    return path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_reports_the_metrics_that_the_scenario_names(name: str) -> None:
    scenario = tiny({name: PROTOCOLS[name]}, metrics=OWN, stop={"rounds": 2}, **LINEAR)
    found = metrics(run(scenario, name)).dropna(subset="test_loss")
    assert {"test_f1", "test_f2", "test_wrong", "test_macro", "test_accuracy"} <= set(found)
    assert (found["test_f1"] == found["test_macro"]).all()
    assert (found["test_f1"] != found["test_f2"]).any()
    if name != "every":  # there the columns are means over the parties
        rows = found["test_wrong"] / (1 - found["test_accuracy"])
        assert rows.round(6).nunique() == 1


def test_parties_with_predictors_of_their_own_have_own_metrics_too() -> None:
    scenario = tiny({"every": {"kind": "easter"}}, metrics={"f2": F2}, target={"test_f2.client-1": "50 %"})
    assert scenario.targets == (Target("test_f2.client-1", 0.5, better="higher"),)
    assert {"test_f2.server", "test_f2.client-4"} <= set(metrics(run(scenario, "every")))


def test_own_metrics_change_no_other_column() -> None:
    plain = metrics(run(tiny("synchronous")))
    more = metrics(run(tiny("synchronous", metrics=OWN)))
    assert more.drop(columns=[f"test_{name}" for name in OWN]).equals(plain)


def test_a_target_may_name_an_own_metric_and_ends_the_run() -> None:
    target = {"test_wrong": 1000, "for": "1 evaluation"}
    outcome = run(tiny("synchronous", metrics=OWN, stop={"rounds": 50, "target": target}))
    assert outcome.info.stop_reason == "target"
    assert outcome.info.counts["rounds"] == 0  # lower is better: at most 1000 rows are wrong at once


@pytest.mark.slow
def test_results_know_own_metrics_without_importing_them(tmp_path: Path, vflsim: Vflsim) -> None:
    path = written(tmp_path, metrics=OWN, target={"test_wrong": "6", "for": "1 evaluation"}, seeds=[0, 1, 2])
    out = tmp_path / "out"
    ended = vflsim("run", path, "--out", out)
    assert ended.status == 0, ended.err
    assert "test_wrong ≤ 6" in (out / "summary.md").read_text()
    info = json.loads((out / "wait/seed-0/run.json").read_text())
    assert info["metrics"]["wrong"] == {"better": "lower", "least": 0, "most": None, "unit": "rows", "undefined": ""}
    page = out / "scenario.yaml"
    page.write_text(page.read_text().replace("own_metrics", "nowhere"))  # the class is gone
    for command in (
        ("compare", out), ("verify", out), ("plot", out, "--kind", "time"),
        ("compare", out, "--target", "test_f2=50 %"), ("report", out),
    ):  # fmt: skip
        ended = vflsim(*command)
        assert ended.status == 0 or command[0] == "verify", (command, ended.err)
        assert "unknown metric" not in ended.out + ended.err


def test_figures_and_tables_use_range_unit_and_direction(tmp_path: Path) -> None:
    scenario = vflsim.load(written(tmp_path, metrics=OWN, seeds=[0, 1, 2]))
    results = vflsim.run(scenario, out=tmp_path / "out")
    picture = PLOTS["time"](results, metric="test_wrong")
    assert picture.axes[0].get_ylabel() == "test wrong (rows)"
    assert (picture.numbers["means"]["low"] >= 0).all()
    estimates = results.estimates({"test_wrong": 1000, "for": "1 evaluation"})
    ended = estimates[(estimates["measure"] == "plateau_test_wrong")]
    assert (ended["unit"] == "rows").all()
    reached = estimates[estimates["measure"] == "rounds_to_target"]
    assert (reached["mean"] == 0).all()
    with pytest.raises(ResultsError, match=r"there is no metric 'test_f3'.*"):
        results.estimates({"test_f3": 0.5})


def test_verify_checks_the_range_of_own_metrics() -> None:
    outcome = run(tiny("synchronous", metrics=OWN))
    assert not [*verify_run(outcome.tables, outcome.info)]
    narrow = outcome.info.metrics["wrong"].model_copy(update={"least": 1000})
    info = outcome.info.model_copy(update={"metrics": {**outcome.info.metrics, "wrong": narrow}})
    problems = [*verify_run(outcome.tables, info)]
    assert problems
    assert all("test_wrong is" in problem and "must be at least 1000" in problem for problem in problems)


def test_tuning_chooses_by_an_own_metric(tmp_path: Path) -> None:
    data = {"name": "digits", "train_rows": 90, "test_fraction": 0.1, "validation_fraction": 0.1}
    path = written(tmp_path, metrics=OWN, data=data)
    found = vflsim.tune(
        path, over={"training.client_optimizer.lr": [0.2, 1e-6]}, metric="validation_wrong", seeds=[5],
        out=tmp_path / "tuned",
    )  # fmt: skip
    assert found.chosen["wait"] == 0


def test_runs_depend_on_the_metrics_that_they_report() -> None:
    without, having = tiny("synchronous"), tiny("synchronous", metrics={"f2": F2})
    assert "own_metrics" in run_text(having, "synchronous")
    assert run_text(without, "synchronous") == run_text(tiny("synchronous", metrics={}), "synchronous")


def test_a_continued_run_knows_which_way_a_target_is_harder() -> None:
    def rules(value: float, name: str = "wrong") -> dict[str, Any]:
        return tiny("synchronous", metrics=OWN, stop={"rounds": 9, "target": {f"test_{name}": value}}).stop.plain()

    end = {"time": 1.0, "rounds": 9, "updates": 36, "wall_clock": 1.0}
    assert ends_alike("rounds", end, rules(5), rules(4))
    assert not ends_alike("rounds", end, rules(4), rules(5))
    assert ends_alike("rounds", end, rules(0.4, "f2"), rules(0.5, "f2"))
    assert not ends_alike("rounds", end, rules(0.5, "f2"), rules(0.4, "f2"))


WRONG = {
    "Random": (r"Random\.value gives .*, then .*; allowed: a function of predictions|random numbers", "Random"),
    "Undefined": (r"Undefined\.value is NaN for labels that are all alike(.|\n)*undefined = 'where", "undefined"),
    "Vector": (r"Vector\.value returned a Tensor of shape \(24,\)(.|\n)*one number", "Vector"),
    "Nothing": (r"Nothing\.value returned a NoneType(.|\n)*one number", "Nothing"),
    "BeyondItsRange": (r"BeyondItsRange\.value is \d+ for random predictions(.|\n)*from 0 to 1", "range"),
    "Infinite": (r"Infinite\.value is inf(.|\n)*finite", "finite"),
    "Writes": (r"Writes\.value changes what it is given(.|\n)*allowed", "copy it"),
    "Raises": (r"Raises fails: LookupError: no such row(.|\n)*own_metrics\.py:\d+, value", "mend it"),
    "NoDirection": (r"NoDirection\.better is 'up'(.|\n)*higher or lower", "better"),
    "NoTask": (r"NoTask\.tasks is \('clustering',\)(.|\n)*multiclass, binary, regression", "tasks"),
    "UpsideDown": (r"UpsideDown\.most is 1(.|\n)*above least, 2", "most"),
    "OfValues": (r"of_values is no metric of a multiclass task(.|\n)*with tasks regression", "remove it"),
    "FBeta, beta: 0": (r"metrics\.it\.beta: 0 is out of range(.|\n)*above 0", "beta"),
    "FBeta, gamma: 1": (r"metrics\.it\.gamma(.|\n)*there is no key 'gamma'", "beta"),
    "torch": (r"is a value of type module but no Metric(.|\n)*derive it from", "Metric"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_metric_is_told_with_file_line_and_remedy(name: str, tmp_path: Path) -> None:
    section = [f"metrics: {{it: {entry('own_metrics', name)}}}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "metrics.it", WRONG[name])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": {"test_f3": 0.5}}, r"target.*\n?.*there is no metric 'test_f3'(.|\n)*test_f2(.|\n)*`metrics`"),
        ({"target": {"test_f2": 50}}, r"50 is out of range(.|\n)*0 to 1(.|\n)*50 %"),
        ({"target": {"validation_f2": 0.5}}, r"validation_f2 needs validation rows"),
        ({"stop": {"target": {"test_wrongly": 3}}}, r"there is no metric 'test_wrongly'"),
        ({"metrics": {"accuracy": F2}}, r"every run reports accuracy(.|\n)*rename it"),
        ({"metrics": {"F2": F2}}, r"'F2' cannot name columns(.|\n)*a-z, 0-9"),
        ({"metrics": {"f2": "macro_f2"}}, r"there is no kind 'macro_f2'(.|\n)*macro_f1"),
        ({"metrics": {"f2": 3}}, r"metrics.f2"),
        ({"metrics": {"f2": "mae"}}, r"mae is no metric of a multiclass task"),
    ],
)
def test_a_mistake_with_metrics_is_told_at_load(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        tiny("synchronous", **{"metrics": OWN, **changes})
    assert str(caught.value).count("\n\n") <= 1


def test_an_own_metric_that_does_not_import_is_the_only_problem() -> None:
    own = {"f2": {"kind": "module", "path": "nowhere_at_all:F2"}}
    with pytest.raises(ScenarioError, match="no module named nowhere_at_all") as caught:
        tiny("synchronous", metrics=own, target={"test_f2": 0.5})
    assert "there is no metric" not in str(caught.value)


def test_a_metric_that_fails_in_a_run_names_its_place() -> None:
    own = {"late": {"kind": "module", "path": "own_metrics:LateFailure"}}
    data = {"name": "digits", "train_rows": 90, "test_fraction": 0.3}
    where = r"server, evaluate, round 0 at 0 s: the metric LateFailure fails: KeyError(.|\n)*own_metrics\.py:\d+"
    with pytest.raises(RunError, match=where):
        run(tiny("synchronous", metrics=own, data=data))
