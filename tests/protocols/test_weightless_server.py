"""VAFL's federated logistic regression with all weights at the clients: a server without any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from kept_runs import assert_interruptions_change_no_byte
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, learners, raw, run, tiny
from torch.nn import functional as F

from vflsim.scenario import load

DECAY = 0.01
REGRESSION: dict[str, Any] = {
    "models__client": {"kind": "linear", "embedding": 10, "bias": False},
    "models__aggregate": "sum",
    "models__server": {"kind": "logistic", "bias": False},
    "training__client_optimizer": {"kind": "sgd", "lr": 0.1, "weight_decay": DECAY},
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "t-synchronous": {"kind": "t_synchronous", "t": 2},
    "asynchronous": {"kind": "asynchronous"},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2},
    "c_vfl": {"kind": "c_vfl", "local_steps": 2},
    "ef_vfl": {"kind": "ef_vfl", "local_steps": 2},
    "ef_vfl-private": {"kind": "ef_vfl", "labels": "private"},
    "fedbcd-sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3, "angle": 80},
    "flex_vfl": {"kind": "flex_vfl", "local_steps": [2, 1, 2, 3, 1]},
}


def test_it_is_logistic_regression_on_all_features() -> None:
    """One weight matrix, gradient descent on cross-entropy + λ/2 ‖θ‖²; the server saves nothing."""
    said = raw({"it": {"kind": "synchronous"}}, **REGRESSION, stop={"updates": 4 * 50})
    scenario = load(said)
    data, outcome = data_of(scenario), run(scenario)
    found = torch.cat([outcome.weights[f"client-{m}.1.weight"] for m in (1, 2, 3, 4)], 1)
    protocol = scenario.protocols["it"].protocol
    _, clients = learners(scenario, "it", 0, data)
    theta = torch.cat([next(clients[m].model.parameters()).detach() for m in clients], 1).clone()
    x = torch.cat([each["train"].flatten(1) for each in data.features], 1)
    batches = protocol.batch_plan().batches(data.rows, scenario.training_of("it"), 0)
    for k in range(50):
        ids = torch.tensor(batches.batch(k).ids)
        error = torch.softmax(x[ids] @ theta.T, 1) - F.one_hot(data.labels["train"][ids], 10)
        theta -= 0.1 * (error.T @ x[ids] / len(ids) + DECAY * theta)
    assert float((found - theta).abs().max()) <= 1e-12
    assert set(outcome.weights) == {f"client-{m}.1.weight" for m in (1, 2, 3, 4)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_train_it_batched_as_eager_and_through_interruptions(name: str, tmp_path: Path) -> None:
    scenario = tiny({"it": PROTOCOLS[name]}, **REGRESSION, timing=RANDOM_TIMING, stop={"rounds": 9})
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path)
    assert apart(outcome, run(scenario, execution=EAGER)) <= 1e-10


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_optimiser_of_no_weights_is_no_obstacle(optimizer: str) -> None:
    rule = {"kind": optimizer, "lr": 0.1, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    outcome = run(tiny(**REGRESSION, training__server_optimizer=rule))
    assert not any(name.startswith("server") for name in outcome.weights)


def test_the_server_costs_no_flops() -> None:
    """Sums and soft-max count for nothing under any protocol."""
    timing = {"server": {"compute": {"kind": "flops", "rate": "1 FLOPS"}}, "clients": {"select": "all"}}
    outcome = run(tiny(**REGRESSION, timing=timing))
    assert outcome.tables.rounds is not None
    assert outcome.tables.rounds.to_pandas()["end_s"].iloc[-1] == 0
