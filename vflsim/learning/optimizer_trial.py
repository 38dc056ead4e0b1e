"""Trial of an update rule from outside: is it an optimiser of PyTorch, and does it repeat itself from its memory?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch.nn.parameter import Parameter

from vflsim.learning.states import load_optimizer, optimizer_state

_STEPS = 4


class Rule(Protocol):
    """What is tried out of an update rule."""

    @property
    def slots(self) -> int:
        """How many numbers it remembers of each weight between steps."""

    def build(self, params: Iterable[Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser for these parameters."""


def try_out(rule: Rule) -> None:
    """Raise ValueError for the first thing that a rule breaks."""
    name = type(rule).__name__
    if type(rule.slots) is not int or rule.slots < 0:
        raise ValueError(f"{name}.slots is {rule.slots!r}; allowed: a whole number, 0 or more")
    parameters, optimizer = _built(rule, name)
    if any(parameter.grad is not None for parameter in parameters):
        raise ValueError(f"{name}.build sets gradients; allowed: an optimiser of the parameters as they are")
    course = [_stepped(parameters, optimizer, step) for step in range(_STEPS)]
    if not all(bool(torch.isfinite(values).all()) for values in course):
        raise ValueError(f"{name} gives weights that are not finite for gradients of magnitude 1; allowed: finite")
    kept = {key for memory in optimizer.state.values() for key, value in memory.items() if not _is_kept(value)}
    if kept:
        raise ValueError(f"{name} remembers {', '.join(sorted(kept))}, no tensor; allowed: tensors, which are kept")
    again, twin = _built(rule, name)
    for step in range(_STEPS // 2):
        _stepped(again, twin, step)
    later, heir = _built(rule, name)
    load_optimizer(heir, optimizer_state(twin))
    with torch.no_grad():
        for own, other in zip(later, again, strict=True):
            own.copy_(other)
    for step in range(_STEPS // 2, _STEPS):
        if not torch.equal(_stepped(again, twin, step), course[step]):
            raise ValueError(f"{name} does not repeat itself; allowed: steps that follow from weights and gradients")
        if not torch.equal(_stepped(later, heir, step), course[step]):
            raise ValueError(f"{name} goes on differently from its memory; allowed: memory in `optimizer.state` alone")


def _built(rule: Rule, name: str) -> tuple[list[Parameter], torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(1)
    parameters = [Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 2), (3,))]
    made = rule.build(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise ValueError(f"{name}.build returned a {type(made).__name__}; allowed: a torch.optim.Optimizer")
    if made.defaults.get("fused") or made.defaults.get("foreach"):
        raise ValueError(f"{name}.build makes a grouped or fused optimiser; allowed: foreach=False, fused=False")
    return parameters, made


def _stepped(parameters: list[Parameter], optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2 + step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def _is_kept(value: object) -> bool:
    return value is None or isinstance(value, torch.Tensor)
