"""Update rules of vflsim and of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from tiny_worlds import raw, run, tiny
from torch import Tensor
from torch.nn.parameter import Parameter

from vflsim import load
from vflsim.errors import ScenarioError
from vflsim.learning.optimizers import OPTIMIZERS, Adam, AnyOptimizer, Optimizer, Sgd

Make = Callable[[list[Parameter]], torch.optim.Optimizer]


def parse(spec: dict[str, Any]) -> Optimizer:
    return TypeAdapter[Optimizer](AnyOptimizer).validate_python(spec)


def kind_of(optimizer: type[Optimizer]) -> str:
    return str(optimizer.model_fields["kind"].default)


def trained(make: Make, steps: int = 20) -> Tensor:
    """Fit a small least-squares problem, the same one every time."""
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((30, 4), (30, 2)))
    theta = Parameter(torch.randn(4, 2, generator=generator, dtype=torch.float64))
    optimizer = make([theta])
    for _ in range(steps):
        optimizer.zero_grad()
        (x @ theta - y).square().mean().backward()
        optimizer.step()
    return theta.detach()


CASES: list[tuple[dict[str, Any], Make]] = [
    ({"kind": "sgd", "lr": 0.1}, lambda p: torch.optim.SGD(p, lr=0.1)),
    ({"kind": "sgd", "lr": 0.1, "momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (
        {"kind": "sgd", "lr": 0.05, "momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5, nesterov=True, weight_decay=0.01),
    ),
    ({"kind": "adam", "lr": 0.01}, lambda p: torch.optim.Adam(p, lr=0.01)),
    (
        {"kind": "adam", "lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
    ),
]


def test_the_table_and_the_union_name_the_same_optimisers() -> None:
    assert get_args(get_args(AnyOptimizer)[0]) == OPTIMIZERS
    assert {kind_of(optimizer) for optimizer in OPTIMIZERS} == {spec["kind"] for spec, _ in CASES}


@pytest.mark.parametrize(("spec", "make"), CASES, ids=[str(spec) for spec, _ in CASES])
def test_training_is_that_of_pytorch(spec: dict[str, Any], make: Make) -> None:
    optimizer = parse(spec)
    assert torch.equal(trained(optimizer.build), trained(make))
    assert parse(optimizer.model_dump(mode="json")) == optimizer


def test_plain_sgd_by_hand() -> None:
    theta = Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = Sgd(lr=0.5, momentum=0.5).build([theta])
    for expected in ([0.5, -2.5], [-0.25, -3.25]):  # g = 1 throughout: v = 1, 1.5
        theta.grad = torch.ones_like(theta)
        optimizer.step()
        assert theta.tolist() == expected


@pytest.mark.parametrize("optimizer", [Sgd(lr=0.1), Adam(lr=0.1)], ids=repr)
def test_the_plain_implementation_is_used(optimizer: Optimizer) -> None:
    (group,) = optimizer.build([Parameter(torch.zeros(2))]).param_groups
    assert group["foreach"] is False
    assert group["fused"] is False


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"kind": "lbfgs", "lr": 0.1}, "adam"),
        ({"kind": "sgd"}, "lr"),
        ({"kind": "sgd", "lr": 0}, "above 0"),
        ({"kind": "sgd", "lr": -0.1}, "above 0"),
        ({"kind": "sgd", "lr": float("nan")}, "out of range"),
        ({"kind": "sgd", "lr": "0.1 s"}, "unit"),
        ({"kind": "sgd", "lr": 0.1, "momentum": 1}, "below 1"),
        ({"kind": "sgd", "lr": 0.1, "momentum": -0.1}, "at least 0"),
        ({"kind": "sgd", "lr": 0.1, "weight_decay": -1}, "at least 0"),
        ({"kind": "sgd", "lr": 0.1, "nesterov": True}, "momentum above 0"),
        ({"kind": "sgd", "lr": 0.1, "betas": [0.9, 0.99]}, "betas"),
        ({"kind": "adam", "lr": 0.1, "betas": [0.9, 1]}, "below 1"),
        ({"kind": "adam", "lr": 0.1, "betas": [0.9]}, "betas"),
        ({"kind": "adam", "lr": 0.1, "eps": 0}, "above 0"),
    ],
)
def test_what_cannot_train_is_refused_by_name(spec: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        parse(spec)


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


@pytest.mark.sampled(2)
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
