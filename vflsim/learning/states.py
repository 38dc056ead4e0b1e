"""States of parties as named tensors: what they have learnt and remember, to be put back exactly.

A state holds the very tensors that its owner works on: it is to be written down before the owner goes on. What an
owner has not made yet has no names in it. A state that is loaded is only read. Tensors are put back in place, so that
whoever looks into them still does, and lie in memory as they did, which can change the last bits of what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = Mapping[str, Tensor]
"""Tensors by dotted names."""


def named(prefix: str, state: State) -> dict[str, Tensor]:
    """``state`` under a name of its own."""
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """What ``named`` has put under this name."""
    start = prefix + "."
    return {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}


def module_state(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, those too that it would not save."""
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def load_module(module: nn.Module, state: State) -> None:
    """Put parameters and buffers back."""
    for name, tensor in module_state(module).items():
        tensor.copy_(state[name])


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, as ``<number>.<name>``."""
    return {
        f"{n}.{name}": value
        for n, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Have it remember what it did."""
    parameters = _parameters(optimizer)
    for key, tensor in state.items():
        number, _, name = key.partition(".")
        parameter = parameters[int(number)]
        device = "cpu" if name == "step" else parameter.device  # PyTorch counts there
        optimizer.state[parameter][name] = tensor.to(device, copy=True)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
