"""What parties can tell of single rows from sums that are decrypted: gradients of ``he_lr``, histograms of trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attacked_runs import finished

from vflsim.attacks import chosen, evaluate
from vflsim.finished import Results, stored_scenario
from vflsim.protocols.solving import closest
from vflsim.scenario import ScenarioData

DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "train_rows": 600},
    "partition": {"clients": 2, "by": "columns", "active": True},
    "models__active": {"kind": "linear", "embedding": 6},
    "record": {"tables": "summary", "views": {"rows": 400, "keep": "all"}},
    "evaluate": {"every": "60 rounds"},
}


@pytest.fixture(scope="module")
def regressions(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Clients have 21 pixels each, and a batch has 5 rows: gradients have as many equations as rows, or more."""
    entries = {"coordinator": {"kind": "he_lr"}, "shares": {"kind": "he_lr", "form": "sshe", "host": 2}}
    said = {**DIGITS, "training__batch": 5, "stop": {"rounds": 240}}
    return finished(entries, tmp_path_factory.mktemp("regressions") / "study", **said)


def test_the_closest_values_have_the_sums_and_change_no_more_than_needed() -> None:
    weights, truth = torch.randn(3, 8).double(), torch.randn(8, 2).double()
    guess = torch.randn(8, 2).double()
    found = closest(guess, weights, weights @ truth)
    assert torch.allclose(weights @ found, weights @ truth)
    assert (found - truth).norm() < (guess - truth).norm()
    assert torch.allclose(closest(found, weights, weights @ truth), found)
    assert torch.allclose(closest(guess, torch.eye(8).double(), truth), truth)


def test_gradients_of_small_batches_are_residuals_and_so_labels(regressions: Results) -> None:
    """e = 1/2 + z/4 − y: the client has e exactly, the server, which has the labels, z/4."""
    views = regressions.run("coordinator", 0).views()
    (client,) = [view for view in views.of_receiver("client-1") if view.derived]
    (server,) = [view for view in views.of_receiver("server") if view.derived]
    assert client.arrivals is not None
    assert server.arrivals is not None
    first = client.arrivals.values[:4]
    assert torch.allclose(first.abs(), torch.full_like(first, 0.5))  # all weights are 0
    arrived = len(client.arrivals.row)  # the last gradients are on their way when the run ends
    y = 0.5 + server.arrivals.values[:arrived] - client.arrivals.values
    assert (y - y.round()).abs().max() < 1e-6
    scenario = stored_scenario(regressions.folder, regressions.runs)
    labels = ScenarioData(scenario).of(scenario.training_of("coordinator")).labels["train"][views.rows]
    assert (y.argmax(1) == labels[client.arrivals.row]).all()
    early = client.arrivals.number == 0
    named = client.arrivals.values[early].argmin(1) == labels[client.arrivals.row[early]]
    assert named.double().mean() > 0.8


def test_clients_of_a_coordinator_find_labels_knowing_none(regressions: Results) -> None:
    options = ["label_inference.client=1", "label_inference.known=0"]
    table = evaluate(regressions, chosen(["label_inference"], options), ["coordinator"]).tables["label_inference"]
    best = table[table["view"] == "strongest"]
    assert (best["low"] > best["chance_high"] + 0.3).all()
    assert (best["chance_high"] < 0.25).all()


def test_shares_that_parties_decrypt_say_nothing(regressions: Results) -> None:
    attacks = chosen(["reconstruction", "label_inference"], ["reconstruction.client=2", "label_inference.known=0"])
    tables = evaluate(regressions, attacks, ["shares"]).tables
    found = tables["reconstruction"].query("features == 'none' and measure == 'r2'")
    assert set(found["attacker"]) == {"server"}
    assert (found["value"].abs() < 0.02).all()
    labels = tables["label_inference"]
    assert (labels["value"] < labels["chance_high"] + 0.03).all()


@pytest.mark.parametrize("goss", [None, {"top": 0.4, "other": 0.3}])
def test_histograms_show_the_server_more_than_nodes_do(goss: dict[str, float] | None, tmp_path: Path) -> None:
    entry = {"kind": "secureboost", "depth": 3, "bins": 16, "packed": 32, "goss": goss}
    results = finished({"it": entry}, tmp_path / "study", **{**DIGITS, "stop": {"rounds": 12}})
    options = ["client=2", "attacker=server", "features=none", "method=linear", "form=values"]
    attack = chosen(["reconstruction"], [f"reconstruction.{each}" for each in options])
    table = evaluate(results, attack).tables["reconstruction"]
    by_view = table[table["measure"] == "r2"].set_index("view")["value"]
    assert by_view["derived bins"] > by_view["derived nodes"] + 0.03
    assert table[table["measure"] == "control"]["value"].abs().item() < 0.05


def test_one_node_of_few_rows_gives_bins_away_exactly(tmp_path: Path) -> None:
    """Ten outputs are 20 sums of a node; where it has fewer rows than independent sums, their bins follow."""
    entry = {"kind": "secureboost", "depth": 6, "bins": 4, "packed": 32, "least_hessian": 0}
    said = {**DIGITS, "data": {"name": "digits", "train_rows": 90}, "stop": {"rounds": 8}}
    results = finished({"it": entry}, tmp_path / "study", **said)
    (bins,) = [view for view in results.run("it", 0).views().of_receiver("server") if view.name == "client-1"]
    guess = bins.values.numpy()
    exact = np.abs(guess - guess.round()) < 1e-3
    assert exact.mean() > 0.7
    assert set(np.abs(guess[exact].round())) == {0, 1, 2, 3}
