"""Tuning runs: a planted best rate is found, what is written can be run, and unfair tunings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from interrupted_steps import interrupt_at
from tiny_worlds import raw

import vflsim
from vflsim.errors import ResultsError, ScenarioError
from vflsim.results.sweeps import SweepPage
from vflsim.results.sweeps.tuning import Tuning
from vflsim.scenario import load
from vflsim.studies.tune import Tuned, tune_protocols
from vflsim.vocabulary.execution_options import RunOptions

BOTH = "training.client_optimizer.lr,training.server_optimizer.lr"
RATES = [1e-6, 0.3, 1e6]
"""The first learns nothing, the last diverges."""
LONGER = ["stop.rounds=30"]


def said(**changes: Any) -> dict[str, Any]:
    world = raw(
        {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}},
        **{
            "stop": {"rounds": 15},
            "evaluate": {"every": "3 rounds"},
            "seeds": [0, 1],
            "data__train_rows": 60,
            **changes,
        },
    )
    world["data"].setdefault("validation_fraction", 0.1)
    return world


def tune(out: Path, source: dict[str, Any] | None = None, values: list[Any] = RATES, **more: Any) -> Tuned:
    return tune_protocols(source or said(), more.pop("key", BOTH), values, out=out, **more)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return tune(tmp_path_factory.mktemp("tuned") / "tuning", in_tuning=LONGER)


# --- what it finds and writes -----------------------------------------------------------------------------------------


def test_a_planted_best_rate_is_found_by_every_protocol(tuned: Tuned) -> None:
    assert tuned.tuning.chosen == {"wait": 1, "async": 1}
    assert tuned.tuning.common == 1
    assert tuned.tuning.metric == "validation_accuracy"


def test_every_protocol_has_the_same_runs_with_the_tuning_seed_alone(tuned: Tuned) -> None:
    runs = tuned.tuning.runs
    assert runs.groupby("protocol")["position"].apply(list).to_dict() == {"wait": [0, 1, 2], "async": [0, 1, 2]}
    assert set(runs["seed"]) == {10_000}
    for found in tuned.tuning.sweep.results:
        assert found.scenario["record"] == "summary"
        for name in found.protocols:
            optimizers = found.scenario["training"]["client_optimizer"], found.scenario["training"]["server_optimizer"]
            assert optimizers[0]["lr"] == optimizers[1]["lr"], name


def test_the_scenarios_written_differ_from_the_first_in_name_and_training_alone(tuned: Tuned) -> None:
    own, common, first = load(tuned.own), load(tuned.common or ""), load(said())
    assert (own.name, common.name) == ("tiny-tuned", "tiny-common")
    for name in first.protocols:
        for made in (own, common):
            training = made.training_of(name)
            assert (training.client_optimizer.lr, training.server_optimizer.lr) == (0.3, 0.3)
            assert training.batch == first.training.batch
    assert own.training == first.training
    for made in (own, common):
        assert (made.seeds, made.stop, made.data) == (first.seeds, first.stop, first.data)
        assert made.data.validation_fraction == 0.1  # stays apart in the reported runs


def test_each_protocol_gets_its_own_value_and_keeps_its_other_overrides(tmp_path: Path) -> None:
    source = said()
    source["protocols"]["async"]["training"] = {"batch": 10}
    found = tune(tmp_path / "t", source, [{"kind": "sgd", "lr": 0.3}, {"kind": "adam", "lr": 0.01}], key=OPTIMIZERS)
    own = load(found.own)
    for name, position in found.tuning.chosen.items():
        assert position is not None
        kind = ["sgd", "adam"][position]
        assert own.training_of(name).client_optimizer.kind == own.training_of(name).server_optimizer.kind == kind
    assert own.training_of("async").batch == 10
    assert own.training_of("wait").batch == 20


OPTIMIZERS = "training.client_optimizer,training.server_optimizer"


def test_all_scores_are_in_the_table_and_the_choice_is_on_the_page(tuned: Tuned) -> None:
    folder = tuned.tuning.sweep.folder
    rows = pq.read_table(folder / "tuning.parquet").to_pandas()
    assert len(rows) == 6
    assert set(rows[rows["chosen"]]["value"]) == {"0.3"}
    assert "| 0.3 (common) | * " in (folder / "tuning.md").read_text()
    assert Tuning.open(folder).chosen == tuned.tuning.chosen


def test_targets_end_no_run_of_a_tuning_but_those_of_the_scenario_written(tmp_path: Path) -> None:
    source = said(stop={"rounds": 15, "target": {"test_accuracy": 0.01}})
    source["protocols"]["wait"]["stop"] = {"target": {"test_loss": 100}}
    found = tune(tmp_path / "t", source, [0.1, 0.3])
    assert {run.info.stop_reason for each in found.tuning.sweep.results for run in each.runs} == {"rounds"}
    assert load(found.own).stop.target.values == {"test_accuracy": 0.01}


def test_what_is_set_in_the_tuning_alone_does_not_reach_the_scenario_written(tmp_path: Path) -> None:
    found = tune(tmp_path / "t", values=[0.1, 0.3], in_tuning=["stop.rounds=6"], overrides=["training.batch=30"])
    counts = {run.info.counts["rounds"] for each in found.tuning.sweep.results for run in each.runs}
    assert counts == {6}
    assert (load(found.own).stop.rounds, load(found.own).training.batch) == (15, 30)


def test_the_score_and_the_metric_can_be_chosen(tmp_path: Path) -> None:
    found = tune(tmp_path / "t", values=[1e-6, 0.3], metric="validation_loss", score="area").tuning
    assert found.chosen == {"wait": 1, "async": 1}
    assert found.scores.loc[1, "wait"] < found.scores.loc[0, "wait"]


def test_a_protocol_that_fails_at_every_rate_keeps_its_training_and_an_old_common_scenario_goes(tmp_path: Path) -> None:
    out = tmp_path / "t"
    tune(out, values=[0.1, 0.3])
    assert (out / "common.yaml").is_file()
    failing = tune(out, values=[1e6, 1e7])
    assert failing.common is None
    assert not (out / "common.yaml").exists()
    assert load(failing.own).training_of("wait") == load(said()).training
    assert len(failing.done.failures) == 4


# --- interrupted, resumed ---------------------------------------------------------------------------------------------


def test_an_interrupted_tuning_is_resumed_with_the_same_choice(
    tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t"
    with monkeypatch.context() as patch:
        interrupt_at(75, patch)
        with pytest.raises(KeyboardInterrupt):
            tune(out, in_tuning=LONGER, options=RunOptions(together=None))
    assert [value.finished for value in SweepPage.read(out).points] == [True, False, False]
    assert not (out / "tuning.json").exists()
    kept = (out / "lr-1e-06/wait/seed-10000/run.json").read_bytes()
    again = tune(out, in_tuning=LONGER, options=RunOptions.of(resume=True))
    assert (out / "lr-1e-06/wait/seed-10000/run.json").read_bytes() == kept
    for name in ("tuning.parquet", "tuning.json", "tuning.md", "tuned.yaml", "common.yaml"):
        assert (out / name).read_bytes() == (tuned.tuning.sweep.folder / name).read_bytes()
    assert again.tuning.chosen == tuned.tuning.chosen
    with pytest.raises(ResultsError, match=r"training\.batch: 20 → 30"):
        tune(out, overrides=["training.batch=30"], in_tuning=LONGER, options=RunOptions.of(resume=True))


# --- what it refuses, before anything is written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "more", "what"),
    [
        (said(data__validation_fraction=0), {}, r"no validation rows.*\n.*\n.*--set data\.validation_fraction=0\.1"),
        (said(), {"seeds": [1]}, r"the scenario reports seed 1(.|\n)*--seeds \[2\]"),
        (said(), {"seeds": "0:1"}, "the scenario reports seed 0"),
        (said(seeds="9999:10002"), {}, "the scenario reports seed 10000"),
        (said(), {"seeds": []}, "seeds"),
        (said(), {"key": "timing.server.compute"}, r"'timing\.server\.compute' is no key of training"),
        (said(), {"key": "training"}, "'training' is no key of training"),
        (said(), {"key": f"{BOTH},"}, "a key is missing"),
        (said(), {"key": "training.batch,training.batch"}, r"the key training\.batch stands twice"),
        (said(), {"values": [0.1]}, "1 value leaves nothing to choose from"),
        (said(), {"values": [0.1, 0.1]}, "the value 0.1 stands twice"),
        (said(), {"values": [0.1, -1]}, r"--over training\.client_optimizer\.lr=-1"),
        (said(), {"metric": "test_accuracy"}, "'test_accuracy' is no metric of this task's validation rows"),
        (said(), {"metric": "validation_auc"}, r"validation_auc(.|\n)*validation_loss, validation_accuracy"),
        (said(), {"score": "best"}, r"no score 'best'(.|\n)*plateau, area"),
        (said(stop={"target": {"test_accuracy": 0.9}}), {}, "targets end no run in a tuning"),
    ],
)
def test_an_unfair_or_impossible_tuning_is_refused_before_anything_runs(
    source: dict[str, Any], more: dict[str, Any], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.studies.sweep.Pool", None)
    with pytest.raises(ScenarioError, match=what):
        tune(tmp_path / "t", source, **more)
    assert list(tmp_path.iterdir()) == []


def test_a_protocol_with_a_rate_of_its_own_is_refused(tmp_path: Path) -> None:
    source = said()
    source["protocols"]["async"]["training"] = {"client_optimizer": {"kind": "sgd", "lr": 1}}
    with pytest.raises(ScenarioError, match=r"async has its own training\.client_optimizer(.|\n)*=null"):
        tune(tmp_path / "t", source)
    ready = load(source, ["protocols.async.training.client_optimizer=null"])
    assert ready.training_of("async").client_optimizer.lr == 0.2


# --- from Python ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("over", [f"{BOTH}=0.1,0.3", {BOTH: [0.1, 0.3]}])
def test_tune_from_python(over: Any, tmp_path: Path) -> None:
    found = vflsim.tune(load(said(stop={"rounds": 6})), over, tmp_path / "t", seeds=[5])
    assert set(found.runs["seed"]) == {5}
    assert len(found.runs) == 4


def test_two_axes_are_refused_from_python(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="one axis, not 2"):
        vflsim.tune(said(), {"training.batch": [10, 20], "training.client_optimizer.lr": [1, 2]}, tmp_path / "t")
