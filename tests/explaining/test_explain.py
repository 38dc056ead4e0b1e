"""What the weights of runs say of their clients: against the weights file, the runs' metrics, and plain sums."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from explained_study import EXPLAINED, SEEDS, said

from vflsim.errors import ResultsError, ScenarioError
from vflsim.explaining import Explanation, explain, save, summarised
from vflsim.explaining.explain import (
    TOGETHER,
    HeadedModels,
    client_table,
    explanation_markdown,
    noisy_test,
    plane,
    rank_correlation,
)
from vflsim.results.read import Results
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.study import run_study

each = pytest.mark.parametrize("name", EXPLAINED)


@pytest.fixture(scope="module")
def scenario(results: Results) -> Scenario:
    return load(results.folder / "scenario.yaml")


@pytest.fixture(scope="module")
def data(scenario: Scenario) -> ScenarioData:
    return ScenarioData(scenario)


@pytest.fixture(scope="module")
def explanation(results: Results) -> Explanation:
    return explain(results, sd=3, rows=0)


@pytest.fixture(scope="module")
def mapped(results: Results) -> Explanation:
    return explain(results, ["vimsgd"], sd=3, rows=30)


def rebuilt(results: Results, scenario: Scenario, data: ScenarioData, name: str, seed: int = 1) -> HeadedModels:
    return HeadedModels(results.run(name, seed), scenario, data.of(scenario.training_of(name)))


@pytest.mark.slow
@each
def test_rebuilt_models_score_as_the_run_did(
    results: Results, scenario: Scenario, data: ScenarioData, name: str
) -> None:
    models = rebuilt(results, scenario, data, name)
    last = results.run(name, 1).frame("metrics").iloc[-1]
    scores = models.score(models.answers())
    assert scores["loss"] == pytest.approx(last["test_loss"], rel=1e-12)
    assert scores["accuracy"] == last["test_accuracy"]


@pytest.mark.sampled(3)
@each
def test_heads_make_the_prediction(results: Results, scenario: Scenario, data: ScenarioData, name: str) -> None:
    models = rebuilt(results, scenario, data, name)
    rows = torch.arange(len(models.data.labels["test"]))
    prediction = sum(models.embedding(client, rows) @ head for client, head in models.heads.items())
    weights = results.weights(name, 1)
    prediction = prediction / len(models.heads) if name == "fdml-mean" else prediction + weights.get("server.bias", 0)
    loss = torch.nn.functional.cross_entropy(prediction, models.data.labels["test"])
    assert float(loss) == pytest.approx(models.score(models.answers())["loss"], rel=1e-12)


@each
def test_importance_is_the_norm_of_the_weights_in_the_file(
    results: Results, explanation: Explanation, name: str
) -> None:
    own = explanation.clients.query("protocol == @name and seed == 0").set_index("client")
    weights = results.weights(name, 0)
    if "server.weight" in weights:
        parts = dict(zip(own.index, torch.split(weights["server.weight"], 5, dim=1), strict=True))
    else:
        parts = {client: weights[f"client-{client}.head.weight"] for client in own.index}
    norms = {client: float(part.pow(2).sum().sqrt()) for client, part in parts.items()}
    assert list(own.index) == ([1, 2] if name == "fdml" else [1, 2, 3])
    np.testing.assert_allclose(own["weight_norm"], list(norms.values()), rtol=1e-12)
    np.testing.assert_allclose(own["share"], np.array(list(norms.values())) / sum(norms.values()), rtol=1e-12)
    assert own["rank"].sort_values().index.tolist() == sorted(norms, key=norms.get, reverse=True)
    assert own["noisy_features"].tolist() == [client == 2 for client in own.index]


def test_every_seed_and_protocol_with_heads_is_explained(explanation: Explanation) -> None:
    assert explanation.protocols == list(EXPLAINED)
    assert set(explanation.clients["seed"]) == set(SEEDS)
    assert set(explanation.left_out) == {"perceptron"}
    assert "models.server: mlp" in explanation.left_out["perceptron"]


@pytest.mark.parametrize("name", ["vimsgd", "fdml"])
def test_noise_on_one_clients_test_rows_changes_its_part_alone(
    results: Results, scenario: Scenario, data: ScenarioData, explanation: Explanation, name: str
) -> None:
    models = rebuilt(results, scenario, data, name)
    noisy = rebuilt_on_noise(results, scenario, data, name)
    rows = torch.arange(len(models.data.labels["test"]))
    parts = {client: models.embedding(client, rows) @ head for client, head in models.heads.items()}
    own = explanation.clients.query("protocol == @name and seed == 1").set_index("client")
    for client, head in models.heads.items():
        changed = {**parts, client: noisy.embedding(client, rows) @ head}
        right = sum(changed.values()).argmax(1) == models.data.labels["test"]
        assert own.loc[client, "perturbed"] == pytest.approx(float(right.double().mean()))
        assert own.loc[client, "drop"] == pytest.approx(own.loc[client, "clean"] - own.loc[client, "perturbed"])


def rebuilt_on_noise(results: Results, scenario: Scenario, data: ScenarioData, name: str) -> HeadedModels:
    perturbed = noisy_test(data.of(scenario.training_of(name)), 3, seed=1)
    return HeadedModels(results.run(name, 1), scenario, perturbed)


def test_perturbed_test_rows_differ_from_clean_ones_by_the_noise(scenario: Scenario, data: ScenarioData) -> None:
    clean = data.of(scenario.training)
    first, again, other = (noisy_test(clean, 3, seed) for seed in (0, 0, 1))
    added = [(made.joint["test"] - clean.joint["test"]).flatten() for made in (first, again, other)]
    assert torch.equal(added[0], added[1])
    assert not torch.equal(added[0], added[2])
    assert float(added[0].std()) == pytest.approx(3, rel=0.05)
    assert first.joint["train"] is clean.joint["train"]
    assert torch.equal(first.features[1]["test"].flatten(1), first.joint["test"][:, clean.columns[1]])


def test_no_noise_costs_nothing(results: Results, scenario: Scenario, data: ScenarioData) -> None:
    models = rebuilt(results, scenario, data, "vimsgd")
    table = client_table(results.run("vimsgd", 1), models, scenario, 0)
    assert not table["drop"].any()
    assert np.isnan(rank_correlation(table))


def test_a_regression_is_explained_by_its_error(tmp_path: Path) -> None:
    """A larger error is worse."""
    x = np.random.default_rng(0).normal(size=(80, 6))
    np.savez(tmp_path / "rows.npz", x=x, y=x[:, 0] * 3 + x[:, 3])
    rows = {"file": str(tmp_path / "rows.npz"), "label": "y"}
    plain = {"client": {"kind": "linear", "embedding": 2}, "aggregate": "concat", "server": {"kind": "linear"}}
    more = {"data": rows, "models": plain, "partition": {"clients": 3, "by": "columns"}, "seeds": [0]}
    run_study(load(said(**more, protocols={"wait": {"kind": "synchronous"}})), tmp_path / "study")
    found = explain(Results.open(tmp_path / "study"), sd=5, rows=10)
    worst = found.clients.set_index("client")
    assert set(worst["metric"]) == {"test_rmse"}
    assert worst.loc[1, "drop"] == worst.loc[1, "perturbed"] - worst.loc[1, "clean"] > 0
    assert worst["drop"].idxmax() == 1
    assert found.planes["label"].astype(float).nunique() == 10


def test_the_heads_of_clients_follow_an_active_servers_own(tmp_path: Path) -> None:
    width, parts = 5, {"clients": 3, "by": "image_rows", "active": True}
    models = {**said()["models"], "active": {"kind": "linear", "embedding": 4}}
    run_study(
        load(said(partition=parts, models=models, seeds=[0], protocols={"wait": {"kind": "synchronous"}})),
        tmp_path / "a",
    )
    found = Results.open(tmp_path / "a")
    weight = found.weights("wait", 0)["server.top.weight"]
    norms = [float(torch.linalg.norm(weight[:, start : start + width])) for start in range(4, 4 + 3 * width, width)]
    clients = explain(found, rows=0).clients
    np.testing.assert_allclose(clients["weight_norm"], norms, rtol=1e-12)
    assert clients["clean"].iloc[0] == found.run("wait", 0).frame("metrics")["test_accuracy"].iloc[-1]


def test_planes_show_the_ends_of_the_ranking_and_all(mapped: Explanation) -> None:
    own = mapped.planes
    order = mapped.clients.query("seed == 0").sort_values("rank")["client"].tolist()
    assert list(own["embedding"].unique()) == [f"client-{order[0]}", f"client-{order[-1]}", TOGETHER]
    assert own.groupby("embedding")["row"].apply(list).map(tuple).nunique() == 1
    assert len(own) == 3 * 30
    assert np.isfinite(own[["x", "y"]]).all(axis=None)
    assert set(own["label"]) <= {str(digit) for digit in range(10)}


def test_equal_embeddings_can_be_mapped() -> None:
    """scikit-learn's default initialisation crashes on them."""
    points = plane(torch.ones(20, 3))
    assert np.isfinite(points).all(axis=None)


def test_written_tables_are_byte_identical_and_read_back(results: Results, mapped: Explanation, tmp_path: Path) -> None:
    again = explain(results, ["vimsgd"], sd=3, rows=30)
    first, second = (save(found, tmp_path / name) for name, found in (("a", mapped), ("b", again)))
    assert [path.name for path in first] == ["clients.parquet", "planes.parquet", "explain.md", "tables.json"]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))
    pd.testing.assert_frame_equal(pd.read_parquet(first[0]), mapped.clients, check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_parquet(first[1]), mapped.planes, check_dtype=False)


def test_the_page_names_noisy_clients_and_what_is_left_out(explanation: Explanation) -> None:
    text = explanation_markdown(explanation)
    assert "| 2 (noisy features) |" in text
    assert "Spearman's ρ of ‖W‖ and loss" in text
    assert "- perceptron: clients have no linear heads" in text


def test_summarised_trains_with_the_ends_of_the_ranking(explanation: Explanation) -> None:
    made = load(summarised(explanation_of(explanation, "wait", "vimadmm"), [0.34]))
    assert made.name == "tiny-summarised"
    assert list(made.protocols) == [
        f"{name}{end}" for name in ("wait", "vimadmm") for end in ("", "-top-1", "-bottom-1")
    ]
    for name in ("wait", "vimadmm"):
        own = explanation.clients.query("protocol == @name").groupby("client")["share"].mean()
        left = {
            end: made.protocols[f"{name}-{end}-1"].protocol.participants(made.clients, made.symbols)
            for end in ("top", "bottom")
        }
        assert left == {"top": [own.idxmax()], "bottom": [own.idxmin()]}
    assert made.protocols["vimadmm-top-1"].protocol.rho == 0.5
    assert made.seeds == SEEDS


def explanation_of(found: Explanation, *names: str) -> Explanation:
    clients = found.clients[found.clients["protocol"].isin(names)]
    return Explanation(found.scenario, clients, found.planes, found.sd, {})


def test_overrides_of_an_entry_stay(explanation: Explanation) -> None:
    made = load(summarised(explanation_of(explanation, "biased"), [0.5]))
    assert made.models_of("biased-top-2").server.bias is True


@pytest.mark.parametrize(
    ("name", "share", "what"),
    [
        ("wait", 1.0, "100 % of 3 clients leaves nobody out"),
        ("wait", 0.9, "90 % of 3 clients leaves nobody out"),
        ("wait", 0.0, "0 % of 3 clients leaves none"),
        ("async", 0.5, "async: this protocol cannot leave clients out"),
    ],
)
def test_impossible_summaries_are_refused(explanation: Explanation, name: str, share: float, what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        summarised(explanation_of(explanation, name), [share])


def copied(study: Path, place: Path) -> Path:
    """The results of one run alone, to be damaged."""
    shutil.copytree(study / "vimsgd" / "seed-0", place / "vimsgd" / "seed-0")
    shutil.copy(study / "scenario.yaml", place)
    return place / "vimsgd" / "seed-0"


def test_a_protocol_without_heads_is_refused_where_it_is_named(results: Results) -> None:
    with pytest.raises(ResultsError, match=r"perceptron: clients have no linear heads.*\n  allowed: concat and linear"):
        explain(results, ["perceptron"])


def test_absent_weights_are_refused(study: Path, tmp_path: Path) -> None:
    (copied(study, tmp_path) / "weights.safetensors").unlink()
    with pytest.raises(ResultsError, match=r"weights\.safetensors"):
        explain(Results.open(tmp_path), rows=0)


def test_weights_of_other_models_are_refused(study: Path, tmp_path: Path) -> None:
    place = copied(study, tmp_path)
    page = tmp_path / "scenario.yaml"
    page.write_text(page.read_text().replace("embedding: 5", "embedding: 6"))
    with pytest.raises(ResultsError, match=r"the weights are not those of the scenario's models \(.*size mismatch"):
        explain(Results.open(tmp_path), rows=0)
    assert place.is_dir()


def test_changed_data_are_refused(study: Path, tmp_path: Path) -> None:
    page = copied(study, tmp_path) / "run.json"
    info = json.loads(page.read_text())
    page.write_text(json.dumps({**info, "rows": {"train": 90, "test": 17}}))
    with pytest.raises(ResultsError, match=r"the data have changed since the run: rows were .*17"):
        explain(Results.open(tmp_path), rows=0)


def test_failed_runs_are_left_out(study: Path, tmp_path: Path) -> None:
    page = copied(study, tmp_path) / "run.json"
    info = json.loads(page.read_text())
    page.write_text(json.dumps({**info, "status": "diverged", "stop_reason": None, "error": "the loss became nan"}))
    with pytest.raises(ResultsError, match=r"no run can be explained \(vimsgd, seed 0: diverged\)"):
        explain(Results.open(tmp_path), rows=0)


def test_timing_alone_cannot_be_explained(tmp_path: Path) -> None:
    run_study(load(said(protocols={"vimsgd": {"kind": "vimsgd"}})), tmp_path / "timed", timing_only=True)
    with pytest.raises(ResultsError, match="the run has no weights: it simulated the timing alone"):
        explain(Results.open(tmp_path / "timed"))
