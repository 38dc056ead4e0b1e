"""Update rules of the tests' own, and some that break their contract, each in one way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch.nn.parameter import Parameter

from vflsim.protocol import Optimizer


class OwnSgd(Optimizer):
    """What the built-in ``sgd`` with a momentum does."""

    kind: Literal["own_sgd"] = "own_sgd"
    momentum: float = 0.9

    @property
    def slots(self) -> int:
        return 1

    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=self.lr, momentum=self.momentum, foreach=False)


class Decoupled(OwnSgd):
    """AdamW."""

    kind: Literal["decoupled"] = "decoupled"  # type: ignore[assignment]

    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=self.lr, weight_decay=self.weight_decay, foreach=False)


class NoOptimizer(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> Any:
        return list(params)


class Grouped(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=self.lr, foreach=True)


class Fractional(OwnSgd):
    @property
    def slots(self) -> Any:
        return 0.5


class Overflowing(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=1e38, momentum=0.9, foreach=False)


class _Noisy(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.add_(torch.randn_like(parameter))
        return super().step(closure)


class Noisy(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return _Noisy(params, lr=self.lr, foreach=False)


class _Counting(torch.optim.SGD):
    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.steps
        return super().step(closure)


class Counting(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return _Counting(params, lr=self.lr, foreach=False)


class _Remembering(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
        return super().step(closure)


class RememberingNumbers(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        return _Remembering(params, lr=self.lr, foreach=False)


class Failing(OwnSgd):
    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        raise KeyError("rate")
