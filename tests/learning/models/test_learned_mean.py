"""The aggregate with trained weights: VAFL as VIM compares with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from kept_runs import assert_interruptions_change_no_byte
from plain_training import Plain, textbook
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, events, learners, raw, run, tiny
from torch import Tensor

from vflsim.errors import ScenarioError
from vflsim.learning.models.layers import WeightedSum
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.vocabulary.execution_options import USUAL, Execution

MLP = {"kind": "mlp", "hidden": [7], "embedding": 5}
MOMENTUM = {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}
VAFL: dict[str, Any] = {
    "models__client": MLP,
    "models__aggregate": "learned_mean",
    "models__server": {"kind": "linear", "bias": False},
    "training__client_optimizer": MOMENTUM,
    "training__server_optimizer": MOMENTUM,
    "partition": {"clients": 3, "by": "image_rows"},
}
"""VIM's baseline: a linear server on the weighted sum."""


class Learned(Plain):
    """Plain training with α among the weights of the server."""

    def __init__(self, said: dict[str, Any], scenario: Scenario, rule: dict[str, Any]) -> None:
        super().__init__(said, scenario, "it", 0, data_of(scenario))
        self.alpha, self.rule = torch.full((3,), 1 / 3, dtype=torch.float64).requires_grad_(), textbook(rule)

    def loss(self, hs: list[Tensor], ids: Tensor) -> Tensor:
        joined = sum(a * h for a, h in zip(self.alpha, hs, strict=True))
        logits = self.server(self.weights[0], joined)
        return -torch.log_softmax(logits, 1)[torch.arange(len(ids)), self.y[ids]].mean()

    def step_all(self, ids: Tensor) -> None:
        loss = self.loss([self.embed(m, ids) for m in self.clients], ids)
        (alpha,) = torch.autograd.grad(loss, self.alpha, retain_graph=True)
        gradients = iter(torch.autograd.grad(loss, [w for m in (0, *self.clients) for w in self.weights[m]]))
        for party in (0, *self.clients):
            self.step(party, [next(gradients) for _ in self.weights[party]])
        with torch.no_grad():
            self.rule.step([self.alpha], [alpha])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@pytest.mark.parametrize("lr", [None, 0.3])
def test_fifty_rounds_are_those_of_one_graph(lr: float | None, execution: Execution) -> None:
    """The weights have the server's optimiser, momentum and decay included, or plain SGD of their own."""
    aggregate = "learned_mean" if lr is None else {"kind": "learned_mean", "lr": lr}
    said = raw({"it": {"kind": "synchronous"}}, **{**VAFL, "models__aggregate": aggregate}, stop={"updates": 150})
    scenario = load(said)
    plain = Learned(said, scenario, MOMENTUM if lr is None else {"kind": "sgd", "lr": lr})
    for k in range(50):
        plain.step_all(plain.ids(1, k))
    found = dict(run(scenario, execution=execution).weights)
    learned = found.pop("server.aggregate.weights")
    assert float((learned - plain.alpha.detach()).abs().max()) <= 1e-10
    assert float((learned - 1 / 3).abs().max()) > 1e-3
    found["server.weight"] = found.pop("server.top.weight")
    assert plain.furthest(found) <= 1e-10


def test_one_step_by_hand() -> None:
    """H = ½ (h_1 + h_2): ∂ℓ/∂α_m = ⟨∂ℓ/∂H, h_m⟩ and ∂ℓ/∂h_m = α_m ∂ℓ/∂H."""
    mixing = WeightedSum(2)
    one, other = (torch.tensor([[x, 1.0]], dtype=torch.float64, requires_grad=True) for x in (2.0, 4.0))
    joined = mixing([one, other])
    assert joined.tolist() == [[3.0, 1.0]]
    joined.backward(torch.tensor([[1.0, -1.0]], dtype=torch.float64))
    assert mixing.weights.grad is not None
    assert one.grad is not None
    assert mixing.weights.grad.tolist() == [1.0, 3.0]
    assert one.grad.tolist() == [[0.5, -0.5]]
    assert mixing([None, other]).tolist() == [[2.0, 0.5]]  # nothing takes the place of what is missing


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "protocol",
    [
        {"kind": "synchronous"},
        {"kind": "ignore", "fastest": 2},
        {"kind": "t_synchronous", "t": 2},
        {"kind": "asynchronous"},
        {"kind": "centralised"},
        {"kind": "fedbcd", "local_steps": 2},
        {"kind": "c_vfl", "local_steps": 2},
        {"kind": "ef_vfl"},
        {"kind": "ef_vfl", "labels": "private"},
        {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    ],
    ids=lambda said: "-".join(map(str, said.values())),
)
def test_every_protocol_trains_the_weights(protocol: dict[str, Any], tmp_path: Path) -> None:
    """Batched as eager, and through an interruption to the byte."""
    scenario = tiny({"it": protocol}, **VAFL, timing=RANDOM_TIMING, stop={"rounds": 9})
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path)
    assert float((outcome.weights["server.aggregate.weights"] - 1 / 3).abs().max()) > 1e-5
    assert apart(outcome, run(scenario, execution=EAGER)) <= 1e-10


def test_the_server_s_own_embedding_has_a_weight() -> None:
    own = {"partition": {"clients": 2, "by": "columns", "active": True}, "models__active": MLP}
    outcome = run(tiny(**{**VAFL, **own}))
    assert outcome.weights["server.aggregate.weights"].shape == (3,)
    assert any(name.startswith("server.embedding.") for name in outcome.weights)


def test_only_participants_have_weights() -> None:
    outcome = run(tiny({"it": {"kind": "ignore", "exclude": "1"}}, **VAFL))
    assert outcome.weights["server.aggregate.weights"].shape == (2,)


def test_the_weights_send_no_bytes_and_cost_no_flops() -> None:
    """Joining is counted for no aggregate; a round's messages are those of a mean."""
    mean = {**VAFL, "models__aggregate": "mean"}
    learned, plain = (events(run(tiny(**changes, stop={"rounds": 3}))) for changes in (VAFL, mean))
    assert learned.equals(plain)
    server, _ = learners(scenario := tiny(**VAFL), "synchronous", 0, data_of(scenario))
    other, _ = learners(tiny(**mean), "synchronous", 0, data_of(scenario))
    assert server._cost("server_step", 20) == other._cost("server_step", 20)


def test_embeddings_of_different_widths_are_refused() -> None:
    wide = [{"select": "1", "embedding": 6}, {"select": "2..N", "embedding": 5}]
    clients = [{"kind": "linear", **each} for each in wide]
    with pytest.raises(ScenarioError, match="all embeddings must be equally wide"):
        tiny(**{**VAFL, "models__client": clients})
