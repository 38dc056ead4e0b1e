"""What protocols outside the package learn is what plain PyTorch does, written without the simulator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from outside_worlds import outside
from tiny_worlds import EAGER, data_of, learners, metrics, run
from torch import Tensor
from torch.nn import functional as F

from vflsim.learning.batches import BatchSequence
from vflsim.scenario import load
from vflsim.streams import SHARED

ROUNDS = 6
RATES = {True: 0.2, False: 0.1}  # of clients, of the server
Weights = dict[str, Tensor]


def weights_of(learner: Any) -> Weights:
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in learner.weights().items()}


def layers(w: Weights, x: Tensor, name: str = "embedding") -> Tensor:
    """A perceptron of the layers called ``name``, as its weights tell."""
    x = x.flatten(1)
    own = [(key, w[key]) for key in w if name in ("", key.split(".")[0])]
    for number, ((_, matrix), (_, bias)) in enumerate(zip(own[::2], own[1::2], strict=True)):
        x = (torch.relu(x) if number else x) @ matrix.T + bias
    return x


def descend(party: int, w: Weights, loss: Tensor) -> None:
    slopes = torch.autograd.grad(loss, list(w.values()))
    with torch.no_grad():
        for tensor, slope in zip(w.values(), slopes, strict=True):
            tensor -= RATES[party > 0] * slope


def furthest(expected: dict[str, Weights], got: Any) -> float:
    plain = {f"{party}.{name}": tensor for party, w in expected.items() for name, tensor in w.items()}
    assert plain.keys() == got.keys()
    return max((tensor - got[name]).abs().max().item() for name, tensor in plain.items())


def test_two_trips_have_the_gradients_of_plain_autograd() -> None:
    said = outside("two_trip", stop={"updates": 3 * ROUNDS}, evaluate={"every": "100 rounds"})
    said["models"]["client"] = {"kind": "mlp", "hidden": [5], "embedding": 6}
    scenario = load(said)
    data = data_of(scenario)
    server, clients = learners(scenario, "two_trip", 0, data)
    w = {0: weights_of(server), **{client: weights_of(learner) for client, learner in clients.items()}}
    features = {0: data.active, **dict(enumerate(data.features, start=1))}
    sequence, losses = BatchSequence(data.rows, scenario.training, 0, SHARED), []
    for k in range(ROUNDS):
        ids = torch.tensor(sequence.batch(k).ids)
        y = data.labels["train"][ids]
        h = {party: layers(w[party], features[party]["train"][ids]) for party in w}
        each = {}
        for party in w:  # a party knows of the others' embeddings what they are, not how they came about
            mean = sum(h[other] if other == party else h[other].detach() for other in w) / len(w)
            each[party] = F.cross_entropy(layers(w[party], mean, "head"), y)
        for party, loss in each.items():
            descend(party, w[party], loss)
        losses.append(sum(loss.item() for loss in each.values()) / len(w))
    named = {"server": w[0], **{f"client-{client}": w[client] for client in clients}}
    for execution in ({}, {"execution": EAGER}):
        outcome = run(scenario, **execution)
        assert furthest(named, outcome.weights) <= 1e-12
        row = metrics(outcome).iloc[-1]
        assert row["train_loss"] == pytest.approx(sum(losses) / ROUNDS, abs=1e-12)
        with torch.no_grad():
            mean = sum(layers(w[party], features[party]["test"]) for party in w) / len(w)
            predictions = {name: layers(own, mean, "head") for name, own in named.items()}
        y = data.labels["test"]
        expected = {name: float((each.argmax(1) == y).double().mean()) for name, each in predictions.items()}
        assert {name: row[f"test_accuracy.{name}"] for name in named} == pytest.approx(expected, abs=1e-12)
        assert row["test_accuracy"] == pytest.approx(sum(expected.values()) / 4, abs=1e-12)
        assert row["test_loss.client-2"] == pytest.approx(float(F.cross_entropy(predictions["client-2"], y)), abs=1e-12)


def test_initial_weights_of_a_client_are_those_of_plain_split_training() -> None:
    said = outside("two_trip")
    said["protocols"]["synchronous"] = {"kind": "synchronous"}
    scenario = load(said)
    data = data_of(scenario)
    ours, theirs = (learners(scenario, name, 3, data)[1][2].weights() for name in ("two_trip", "synchronous"))
    assert all(torch.equal(tensor, ours[f"embedding.{name}"]) for name, tensor in theirs.items())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tolerance", [0.0, 0.7])
def test_local_steps_descend_the_clients_own_objective(tolerance: float) -> None:
    keys = {"local_steps": 3, "rho": 0.5, "tolerance": tolerance}
    stop = {"updates": 3 * 3 * ROUNDS}
    scenario = load(outside("three_tensors", keys, stop=stop, evaluate={"every": "100 rounds"}))
    data, rho, rows = data_of(scenario), 0.5, 20
    server, clients = learners(scenario, "three_tensors", 0, data)
    w = {client: weights_of(learner) for client, learner in clients.items()}
    heads, dual = weights_of(server), torch.zeros(data.rows, 10, dtype=torch.float64)
    of_client = {client: heads[f"head-{client}.weight"] for client in clients}
    sequence, settled = BatchSequence(data.rows, scenario.training, 0, SHARED), 0
    for k in range(ROUNDS):
        ids = torch.tensor(sequence.batch(k).ids)
        y = data.labels["train"][ids]
        x = {client: data.features[client - 1]["train"][ids] for client in clients}
        with torch.no_grad():
            h = {client: layers(w[client], x[client], "") for client in clients}
            total = sum(h[client] @ of_client[client].T for client in clients)
            z = total.clone()
            for _ in range(10):  # Eq. 6; the loss is the sum over rows
                slope = torch.softmax(z, 1) - F.one_hot(y, 10)
                z = z - (slope - dual[ids] + rho * (z - total)) / (2 + rho)
            dual[ids] += rho * (total - z)  # Eq. 7
        prediction = sum(h[client] @ of_client[client].T for client in clients)
        lagrangian = (dual[ids] * prediction).sum() + rho / 2 * (prediction - z).square().sum()
        descend(0, heads, lagrangian / len(ids))  # Eq. 8
        for client in clients:
            with torch.no_grad():
                others = sum(h[other] @ of_client[other].T for other in clients if other != client)
                gap = others + h[client] @ of_client[client].T - z
                target = (z - others - dual[ids] / rho).float().double()  # Eq. 9, in scaled form
                chosen = (gap.square().sum(1).sqrt() > tolerance).double()
            settled += int((chosen == 0).sum())
            for _ in range(3):  # Eq. 10
                part = layers(w[client], x[client], "") @ of_client[client].detach().T
                descend(client, w[client], rho / 2 * (chosen * (target - part).square().sum(1)).sum() / len(ids))
    assert rows == len(ids) or k == ROUNDS - 1
    assert (settled > 0) == (tolerance > 0)
    expected = {"server": heads, **{f"client-{client}": w[client] for client in clients}}
    for execution in ({}, {"execution": EAGER}):
        assert furthest(expected, run(scenario, **execution).weights) <= 1e-10
