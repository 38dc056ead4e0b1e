"""Equation solving: systems by hand, exact solutions of linear clients, and what sums and predictions determine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from attacked_runs import finished
from attacked_servers import binary_labels, net, random, uploads
from protocols_by_kind import HEADS, KINDS

from vflsim.attacks import Evaluation, chosen, evaluate
from vflsim.attacks.equations import Affine, Equations, heads_of, predicted
from vflsim.trained import trained_models

DATA = {"name": "digits", "train_rows": 300, "test_fraction": 0.2}
FIELDS = ["equations", "unknowns"]


def models(embedding: int = 16) -> dict[str, Any]:
    """Linear clients: with 16 elements there are more equations than a client of four has pixels of digits."""
    client = {"kind": "linear", "embedding": embedding}
    return {"client": client, "aggregate": "mean", "server": {"kind": "mlp", "hidden": [16]}}


def attacked(folder: Path, protocols: dict[str, Any], **changes: Any) -> Evaluation:
    results = finished(protocols, folder / "study", data=DATA, **changes)
    return evaluate(results, chosen(["equations"], []))


def of(table: pd.DataFrame, view: str, knows: str) -> pd.DataFrame:
    return table[(table["view"] == view) & (table["knows"] == knows)]


@pytest.mark.parametrize(("origin", "expected"), [((0.0, 0.0), (3.0, 3.0)), ((2.0, 0.0), (4.0, 2.0))])
def test_of_all_solutions_the_closest_is_taken(origin: tuple[float, float], expected: tuple[float, float]) -> None:
    """x₁ + x₂ = 6, said twice."""
    weights = {1: np.array([[1.0, 2.0]]), 3: np.array([[1.0, 2.0]])}
    equations = Equations("sum", weights, np.array([[6.0, 12.0]]))
    found = equations.solved({1: np.array(origin[:1]), 3: np.array(origin[1:])})
    assert equations.count == 1
    np.testing.assert_allclose([found[1][0, 0], found[3][0, 0]], expected)


def test_as_many_equations_as_features_have_one_solution() -> None:
    w, x = random(5, 5, seed=1).numpy(), random(7, 5, seed=2).numpy()
    equations = Equations("upload", {2: w}, x @ w)
    assert equations.count == 5
    np.testing.assert_allclose(equations.solved({2: np.ones(5)})[2], x)


def test_heads_are_those_of_a_linear_server() -> None:
    server, sent = net((5, 3)), {1: random(6, 2, seed=1), 2: random(6, 3, seed=2)}
    found = heads_of(uploads(server, sent, torch.arange(6) % 3))
    expected = server[0].weight.detach().numpy().T
    np.testing.assert_allclose(found[1], expected[:2], atol=1e-12)
    np.testing.assert_allclose(found[2], expected[2:], atol=1e-12)


def test_a_server_with_a_hidden_layer_gives_no_equations() -> None:
    sent = {1: 3 * random(6, 2, seed=1)}
    with pytest.raises(ValueError, match="not linear in the uploads"):
        heads_of(uploads(net((2, 4, 3)), sent, torch.arange(6) % 3))


@pytest.mark.parametrize("outputs", [1, 4])
def test_predictions_are_equations_of_features(outputs: int) -> None:
    """Of classes c − 1, since probabilities do not change when all logits rise; of one logit that one."""
    x, w, b = random(6, 3, seed=1).numpy(), random(3, 2, seed=2).numpy(), random(2, seed=3).numpy()
    sent = {1: torch.from_numpy(x @ w + b)}
    labels = binary_labels(random(6, 1)) if outputs == 1 else torch.arange(6) % outputs
    found = predicted(uploads(net((2, outputs)), sent, labels), {1: Affine(w, b)}, outputs > 1)
    assert found.known.shape == (6, max(1, outputs - 1))
    np.testing.assert_allclose(found.known, x @ found.weights[1], atol=1e-12)
    assert found.count == min(2, max(1, outputs - 1))


def test_uploads_of_linear_clients_are_solved_exactly_and_sums_in_part(tmp_path: Path) -> None:
    entries = {
        "plain": {"kind": "synchronous"},
        "blinded": {"kind": "synchronous", "blinding": "on"},
        "easter": KINDS["easter"],
        "coded": {**KINDS["fedvs"], "models": {"aggregate": "mean", "active": None}},
    }
    table = attacked(tmp_path, entries, models=models()).tables["equations"]
    views = {name: sorted(set(table.loc[table["protocol"] == name, "view"])) for name in entries}
    assert views == {"plain": ["upload"], "blinded": ["sum"], "easter": ["sum"], "coded": ["sum"]}
    plain, sums = table[table["view"] == "upload"], table[table["view"] == "sum"]
    assert (plain["value"] > 0.9999).all()
    assert set(plain["unknowns"]) == {12, 13}  # the active party has as many
    assert (plain["equations"] == plain["unknowns"]).all()
    assert sums[FIELDS].drop_duplicates().to_numpy().tolist() == [[16, 51]]
    assert (sums["value"] < 0.9).all()
    assert (sums["value"] > sums["chance"]).all()
    assert (of(table, "sum", "means")["chance"].abs() < 0.1).all()


def test_fewer_equations_than_features_give_their_projection(tmp_path: Path) -> None:
    results = finished({"it": {"kind": "synchronous"}}, tmp_path / "study", models=models(5), data=DATA)
    table = evaluate(results, chosen(["equations"], ["equations.rows=2000"])).tables["equations"]
    assert table[FIELDS].drop_duplicates().to_numpy().tolist() == [[5, 16]]
    trained = trained_models(results, "it", 0)
    for client, value in zip((1, 2, 3, 4), of(table, "upload", "nothing")["value"], strict=True):
        (w,) = (each.double().numpy() for each in trained.learners.clients[client].weights().values() if each.ndim == 2)
        x = trained.data.features[client - 1]["test"].flatten(1).double().numpy()
        kept = x @ np.linalg.pinv(w) @ w
        assert value == pytest.approx(1 - ((x - kept) ** 2).sum() / ((x - x.mean(0)) ** 2).sum(), abs=1e-3)


def test_linear_heads_make_predictions_equations(tmp_path: Path) -> None:
    table = attacked(tmp_path, {"it": {"kind": "vimsgd"}}, models={**models(), **HEADS}).tables["equations"]
    found = of(table, "prediction", "means")
    assert found[FIELDS].drop_duplicates().to_numpy().tolist() == [[9, 64]]
    assert (found["value"] > found["chance"]).all()


def test_perceptrons_are_left_out_with_the_reason(tmp_path: Path) -> None:
    entries = {"linear": {"kind": "synchronous"}, "deep": {"kind": "synchronous", "models": {
        "client": {"kind": "mlp", "hidden": [8], "embedding": 16}}}}  # fmt: skip
    found = attacked(tmp_path, entries, models=models())
    assert set(found.tables["equations"]["protocol"]) == {"linear"}
    reason = "client 1's upload is no affine function of its features; allowed: linear clients"
    assert found.left_out["equations of deep"] == reason
    assert "not linear in the uploads" in found.left_out["equations of linear"]
