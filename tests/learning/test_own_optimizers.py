"""Update rules from outside: they step as built-in ones do, are tried out first, and survive checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_worlds import raw, run, tiny

from vflsim import load
from vflsim.errors import ScenarioError

BROKEN = {
    "NoOptimizer": ("build returned a list", "a torch.optim.Optimizer"),
    "Grouped": ("makes a grouped or fused optimiser", "foreach=False"),
    "Fractional": ("slots is 0.5", "a whole number"),
    "Overflowing": ("weights that are not finite", "finite"),
    "Noisy": ("Noisy.build draws from PyTorch's global generator", "follow from weights and gradients"),
    "Counting": ("goes on differently from its memory", "memory in `optimizer.state` alone"),
    "RememberingNumbers": ("remembers count, no tensor", "tensors"),
    "Failing": ("KeyError: 'rate'", "raised in"),
}


HEADS = {"models__aggregate": "concat", "models__server": {"kind": "linear", "bias": False}}


def own(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_optimizers:{name}", "lr": 0.1, **fields}


@pytest.mark.parametrize("kind", ["synchronous", "vimsgd", "fdml"])
def test_an_own_rule_trains_as_the_same_built_in_one(kind: str) -> None:
    built_in = {"kind": "sgd", "lr": 0.1, "momentum": 0.9}
    heads: dict[str, Any] = {} if kind == "synchronous" else HEADS
    weights = []
    for rule in (built_in, own("OwnSgd")):
        scenario = tiny(kind, training__client_optimizer=rule, training__server_optimizer=rule, **heads)
        weights.append(run(scenario).weights)
    assert weights[0].keys() == weights[1].keys()
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, msg=name)


def test_an_own_rule_may_be_one_of_several_and_has_its_fields() -> None:
    rules = [{"kind": "sgd", "lr": 0.1}, {"select": 2, **own("Decoupled", weight_decay=0.01)}]
    first, second, *_ = load(raw("synchronous", training__client_optimizer=rules)).training.client_optimizers(3)
    assert (first.kind, second.kind, second.weight_decay) == ("sgd", "decoupled", 0.01)


def test_clients_with_an_own_rule_are_computed_one_by_one_and_the_run_says_why() -> None:
    alone = run(tiny("synchronous", training__client_optimizer=own("Decoupled"))).info.one_by_one
    assert len(alone) == 1
    assert "one by one: their optimiser is not vflsim's own" in alone[0]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_are_refused_when_the_scenario_is_read(name: str) -> None:
    what, allowed = BROKEN[name]
    with pytest.raises(ScenarioError) as caught:
        load(raw("synchronous", training__server_optimizer=own(name)))
    said = str(caught.value)
    assert what in said
    assert allowed in said
    assert "training.server_optimizer" in said


def test_what_is_no_optimizer_is_refused() -> None:
    path = {"kind": "module", "path": "own_delays:Beta", "a": 1, "b": 2}
    with pytest.raises(ScenarioError, match="own_delays:Beta is a class but no Optimizer"):
        load(raw("synchronous", training__server_optimizer=path))
