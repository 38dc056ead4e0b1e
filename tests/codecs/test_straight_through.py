"""Codecs in training against a custom autograd.Function in a plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plain_training import Plain
from tiny_worlds import data_of, metrics, raw, run
from torch import Tensor

from vflsim.scenario import load

ROUNDS = 20


def whole(x: Tensor) -> Tensor:
    return torch.round(x).clamp(-127, 127)


def sign(x: Tensor) -> Tensor:
    return torch.where(x < 0, -torch.ones_like(x), torch.ones_like(x))


def half(x: Tensor) -> Tensor:
    return x.to(torch.float16).to(x.dtype)


class StraightThrough(torch.autograd.Function):
    """``up`` of the embedding forward, ``down`` of the gradient backward: nothing else."""

    @staticmethod
    def forward(context: Any, x: Tensor, up: Any, down: Any) -> Tensor:
        context.down = down
        return up(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return context.down(gradient), None, None


CASES: dict[str, tuple[Any, Any, Any]] = {
    "round": ("round", whole, lambda g: g),
    "round, int16": ({"kind": "round", "bits": 16}, whole, lambda g: g),
    "round, gradients": ({"kind": "round", "gradients": True}, whole, whole),
    "binarise": ("binarise", sign, lambda g: g),
    "binarise, gradients": ({"kind": "binarise", "gradients": True}, sign, sign),
    "float16": ("float16", half, half),
    "by direction": ({"kind": "by_direction", "up": "round", "down": "float16"}, whole, half),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_training_is_that_of_a_custom_autograd_function(case: str) -> None:
    codec, up, down = CASES[case]
    ends = {"stop": {"updates": 4 * ROUNDS}, "evaluate": {"every": f"{ROUNDS} rounds"}}
    said = raw("synchronous", codec=codec, models__aggregate="concat", **ends)
    scenario = load(said)
    plain = Plain(said, scenario, "synchronous", 0, data_of(scenario))
    losses = []
    for k in range(ROUNDS):
        ids = plain.ids(1, k)
        hs = [StraightThrough.apply(plain.embed(m, ids), up, down) for m in plain.clients]
        loss, parties = plain.loss(hs, ids), [0, *plain.clients]
        gradients = iter(torch.autograd.grad(loss, [w for party in parties for w in plain.weights[party]]))
        for party in parties:
            plain.step(party, [next(gradients) for _ in plain.weights[party]])
        losses.append(float(loss.detach()))
    outcome = run(scenario)
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / ROUNDS, abs=1e-10)
    if case != "round, gradients":  # gradients below 1/2 become 0
        assert losses[-1] < losses[0]
