"""SecureBoost against the same trees grown centrally, its bytes and times against the algorithm's counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_worlds import apart, data_of, events, metrics, rounds, run, tiny

from vflsim.codecs.encryption import TIMES, opened, sealed
from vflsim.errors import ScenarioError
from vflsim.protocols.secureboost.trees import SplitRule, best_splits, packed_bits, unpacked_bits
from vflsim.scenario.models import Scenario
from vflsim.simulation.vectorised import obstacles

GROWN: dict[str, Any] = {"kind": "secureboost", "depth": 2, "bins": 6, "learning_rate": 0.4, "ridge": 0.7}
ROUNDS = 3


def boosted(active: bool = True, data: str = "digits", **keys: Any) -> Scenario:
    changes: dict[str, Any] = {"partition__active": True, "models__active": {"kind": "linear", "embedding": 6}}
    said = {"name": data, "train_rows": 90, "test_fraction": 0.1}
    entry = {"it": {**GROWN, **keys}}
    return tiny(entry, data=said, stop={"rounds": ROUNDS}, record="events", **(changes if active else {}))


# --- the same trees, grown by recursion on all features in one place --------------------------------------------------


def slopes(task: str, scores: Any, y: Any) -> tuple[Any, Any]:
    if task == "binary":
        p = 1 / (1 + np.exp(-scores))
        return p - y, p * (1 - p)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return p - np.eye(scores.shape[1])[y.astype(int)], p * (1 - p)


def gain_of(g: Any, h: Any, left: Any, ridge: float) -> float:
    def score(rows: Any) -> float:
        return float((g[rows].sum(0) ** 2 / (h[rows].sum(0) + ridge)).sum())

    if min(h[left].sum(), h[~left].sum()) < 1e-3:
        return -np.inf
    return (score(left) + score(~left) - score(np.ones(len(g), bool))) / 2


def grow(x: Any, edges: Any, g: Any, h: Any, depth: int, ridge: float) -> Any:
    """A leaf's weight, or (feature, threshold, left, right): of thresholds of equal gain the first."""
    where = [(f, edge) for f in range(x.shape[1]) for edge in edges[f]] if depth else []
    tries = [(gain_of(g, h, x[:, f] <= edge, ridge), f, edge) for f, edge in where]
    best = max((gain for gain, _, _ in tries), default=0.0)
    if best <= 1e-12:
        return -g.sum(0) / (h.sum(0) + ridge)
    _, feature, edge = next(each for each in tries if each[0] >= best - 1e-12)
    left = x[:, feature] <= edge
    return feature, edge, *(grow(x[some], edges, g[some], h[some], depth - 1, ridge) for some in (left, ~left))


def value_of(tree: Any, row: Any) -> Any:
    while isinstance(tree, tuple):
        feature, edge, left, right = tree
        tree = left if row[feature] <= edge else right
    return tree


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("data", "active"), [("digits", True), ("digits", False), ("breast_cancer", True)])
def test_scores_are_those_of_trees_grown_centrally(data: str, active: bool) -> None:
    scenario = boosted(active, data)
    loaded, outcome = data_of(scenario, "it"), run(scenario, "it")
    parties = [*([loaded.active] if loaded.active is not None else []), *loaded.features]
    x, test = (
        np.concatenate([each[split].reshape(len(each[split]), -1).numpy() for each in parties], 1)
        for split in ("train", "test")
    )
    y = loaded.labels["train"].numpy()
    edges = [np.quantile(column, np.arange(1, 6) / 6) for column in x.T]
    scores, predicted = (np.zeros((len(rows), loaded.outputs)) for rows in (x, test))
    for _ in range(ROUNDS):
        tree = grow(x, edges, *slopes(loaded.task.name, scores, y), 2, 0.7)
        scores += 0.4 * np.stack([value_of(tree, row) for row in x])
        predicted += 0.4 * np.stack([value_of(tree, row) for row in test])
    expected = loaded.task.scores(torch.from_numpy(predicted), loaded.labels["test"])
    last = metrics(outcome).iloc[-1]
    assert last["test_loss"] == pytest.approx(expected["loss"], rel=1e-9)
    assert last["test_accuracy"] == pytest.approx(expected["accuracy"])
    owners = outcome.weights["server.owners"].numpy()
    assert (owners[:ROUNDS] >= 0).any(1).all()
    assert (owners[ROUNDS:] == -1).all()


def test_packing_changes_bytes_and_times_and_no_tree() -> None:
    one, packed = run(boosted(), "it"), run(boosted(packed=32), "it")
    assert apart(one, packed) == 0
    assert metrics(one)["bytes_down"].iloc[-1] > 10 * metrics(packed)["bytes_down"].iloc[-1]
    assert rounds(one)["end_s"].iloc[-1] > 5 * rounds(packed)["end_s"].iloc[-1]


def test_the_first_tree_is_the_servers_own_and_costs_no_message() -> None:
    outcome = run(boosted(secure_first=True), "it")
    owners = outcome.weights["server.owners"].numpy()
    assert set(owners[0].tolist()) <= {0, -1}
    assert (owners[1 : 1 + ROUNDS] > 0).any()
    first = events(outcome, "compute.first_tree").iloc[0]
    assert first["start_s"] == 0
    assert first["end_s"] <= events(outcome)[events(outcome)["bytes"] > 0]["start_s"].min()


def test_goss_sends_fewer_rows_and_trees_differ() -> None:
    every, some = run(boosted(), "it"), run(boosted(goss={"top": 0.2, "other": 0.1}), "it")
    assert apart(every, some) > 0
    assert metrics(some)["bytes_down"].iloc[-1] < 0.4 * metrics(every)["bytes_down"].iloc[-1]


def test_bytes_and_seconds_follow_from_the_counts() -> None:
    """20 values a row; clients' histograms of w features, 6 bins and 20 values, for 1 and 2 nodes."""
    scenario = boosted(False)
    loaded, outcome = data_of(scenario, "it"), run(scenario, "it")
    n, times = loaded.rows, TIMES["paillier", 2048]
    values = 2 * loaded.outputs
    wide = [each["train"][0].numel() for each in loaded.features]
    bits = 60 + -(-n // 8)
    down = 4 * (60 + 34 + n * values * 512) + sum(4 * (60 + nodes * 2 * 8) for nodes in (1, 2)) + 4 * bits
    up = sum(60 + nodes * w * 6 * values * 512 for nodes in (1, 2) for w in wide) + 2 * 4 * bits
    table = metrics(outcome).iloc[-1]
    assert table["bytes_up"] == ROUNDS * up
    assert table["bytes_down"] == ROUNDS * down
    lasts = events(outcome).assign(lasts=lambda e: e["end_s"] - e["start_s"]).groupby("kind")["lasts"]
    assert lasts.first()["compute.encrypt_gradients"] == pytest.approx(n * values * times.encrypt)
    assert lasts.first()["compute.decrypt"] == pytest.approx(sum(wide) * 6 * values * times.decrypt)
    one = events(outcome, "compute.histogram", "client-1").iloc[0]
    assert one["end_s"] - one["start_s"] == pytest.approx(n * wide[0] * values * times.add)


def test_a_run_ends_with_its_last_tree() -> None:
    scenario = tiny({"it": {**GROWN, "trees": 5}}, stop={"rounds": 50})
    outcome = run(scenario, "it")
    assert outcome.info.counts["rounds"] == 5
    assert any("ends with round 5" in problem.what for problem in obstacles(scenario, "it"))
    assert not any("ends with round" in problem.what for problem in obstacles(tiny({"it": GROWN}), "it"))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"packed": 33}, "allowed: 1 to 32, key ÷ 64"),
        ({"trees": 1, "secure_first": True}, "allowed: 2 or more"),
        ({"depth": 9}, "depth"),
        ({"goss": {"top": 0}}, "top"),
        ({"training": {"loss": {"kind": "focal"}}}, "has no second derivative here"),
    ],
)
def test_keys_are_checked(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        tiny({"it": {**GROWN, **keys}})
    assert says in str(caught.value)


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_values_survive_being_sealed_and_bits_being_packed() -> None:
    values = np.random.default_rng(0).normal(size=(5, 6))
    assert (opened(sealed(values, 512), 6) == values).all()
    flags = np.random.default_rng(1).random((3, 21)) < 0.5
    assert (unpacked_bits(packed_bits(flags), 21) == flags).all()


def test_a_node_without_gain_has_no_split() -> None:
    sums = np.zeros((2, 3, 4, 2))
    sums[..., 1] = 1.0
    sums[1, :, 0, 0], sums[1, :, 3, 0] = [0.0, 1.0, 5.0], [0.0, -1.0, -5.0]
    found = best_splits(sums, SplitRule(1.0, 0.0, 0.0))
    assert found.features.tolist() == [-1, 2]
    assert found.bins.tolist() == [-1, 0]
