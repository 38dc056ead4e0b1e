"""EASTER: a round by hand, and 50 rounds against plain autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_worlds import EAGER, data_of, learners, metrics, raw, run
from torch import Tensor
from torch.nn import functional as F

from vflsim.learning.batches import BatchSequence
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import USUAL, Execution
from vflsim.streams import SHARED, party_name

ROUNDS = 50
RATES = {True: 0.2, False: 0.1}  # of passive parties, of the active party
both = pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])


def easter(*others: str, **changes: Any) -> Scenario:
    """A scenario of an active party and three passive ones, without the rounding of blinding."""
    active: dict[str, Any] = {
        "partition": {"clients": 3, "active": True},
        "models__active": {"kind": "mlp", "hidden": [7], "embedding": 6},
        "models__client": {"kind": "mlp", "hidden": [5], "embedding": 6},
        "stop": {"updates": 3 * ROUNDS},
        "evaluate": {"every": "100 rounds"},
    }
    protocols = {"easter": {"kind": "easter", "blinding": "off"}, **{kind: {"kind": kind} for kind in others}}
    return load(raw(protocols, **{**active, **changes}))


HETEROGENEOUS: dict[str, Any] = {
    "models__client": [
        {"select": "all", "kind": "mlp", "hidden": [5], "embedding": 6},
        {"select": "2", "kind": "cnn", "channels": [2], "embedding": 6},
    ],
    "models__predictor": [{"select": "1", "kind": "linear"}, {"select": "2", "kind": "mlp", "hidden": [4, 3]}],
    "partition": {"clients": 3, "active": True, "by": "image_rows"},
}


@both
@pytest.mark.parametrize("nets", [{}, HETEROGENEOUS], ids=["alike", "heterogeneous"])
def test_fifty_rounds_have_the_gradients_of_plain_autograd(nets: dict[str, Any], execution: Execution) -> None:
    scenario = easter(**nets)
    data = data_of(scenario)
    server, clients = learners(scenario, "easter", 0, data)
    parties = {0: server, **clients}
    features = {0: data.active, **dict(enumerate(data.features, start=1))}
    pairs = {party: (learner.embedding.build(), learner.predictor.build()) for party, learner in parties.items()}
    rules = {
        party: torch.optim.SGD([p for net in pair for p in net.parameters()], RATES[party > 0])
        for party, pair in pairs.items()
    }
    sequence, losses = BatchSequence(data.rows, scenario.training, 0, SHARED), []
    for k in range(ROUNDS):
        ids = torch.tensor(sequence.batch(k).ids)
        h = {party: embed(features[party]["train"][ids]) for party, (embed, _) in pairs.items()}
        each: list[Tensor] = []
        for party, (_, predict) in pairs.items():  # each loss goes back through the party's own embedding alone
            mean = sum(h[other] if other == party else h[other].detach() for other in pairs) / len(pairs)
            each.append(F.cross_entropy(predict(mean), data.labels["train"][ids]))
        for rule in rules.values():
            rule.zero_grad()
        torch.autograd.backward(each)
        for rule in rules.values():
            rule.step()
        losses.append(sum(loss.item() for loss in each) / len(pairs))
    outcome = run(scenario, execution=execution)
    named = {party_name(party): pair for party, pair in pairs.items()}
    plain = {
        f"{party}.{net}.{name}": tensor
        for party, pair in named.items()
        for net, module in zip(("embedding", "predictor"), pair, strict=True)
        for name, tensor in module.state_dict().items()
    }
    assert plain.keys() == outcome.weights.keys()
    assert max((tensor - outcome.weights[name]).abs().max().item() for name, tensor in plain.items()) <= 1e-10
    row = metrics(outcome).iloc[-1]
    with torch.no_grad():
        mean = sum(embed(features[party]["test"]) for party, (embed, _) in pairs.items()) / len(pairs)
        right = {name: predict(mean).argmax(1) == data.labels["test"] for name, (_, predict) in named.items()}
    expected = {name: each.double().mean().item() for name, each in right.items()}
    assert {name: row[f"test_accuracy.{name}"] for name in named} == pytest.approx(expected, abs=1e-12)
    assert row["test_accuracy"] == pytest.approx(sum(expected.values()) / 4, abs=1e-12)


def test_initial_weights_are_those_of_split_training() -> None:
    scenario = easter("synchronous")
    data = data_of(scenario)
    (ours, mine), (theirs, their) = (learners(scenario, name, 3, data) for name in ("easter", "synchronous"))
    own = ours.weights()
    for name, tensor in theirs.weights().items():
        assert torch.equal(tensor, own[name.replace("top.", "predictor.")])
    for client, learner in their.items():
        own = mine[client].weights()
        assert all(torch.equal(tensor, own[f"embedding.{name}"]) for name, tensor in learner.weights().items())
