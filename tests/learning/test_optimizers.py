from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor
from torch.nn.parameter import Parameter

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
