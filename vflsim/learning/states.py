"""States of parties as named tensors, restored exactly.

A state holds the tensors that its owner works on: write it before the owner continues. It has no names for things that
the owner has not made yet. Loading only reads a state. Tensors are restored in place: views of them stay views, and
their layout in memory, which can change the last bits of later results, stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = Mapping[str, Tensor]
"""Tensors by dotted names."""


def named(prefix: str, state: State) -> dict[str, Tensor]:
    """Put ``prefix`` before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """Return the tensors that ``named`` has put under ``prefix``."""
    start = prefix + "."
    return {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}


def module_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and all buffers of a module, also those that ``state_dict`` leaves out."""
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def load_module(module: nn.Module, state: State) -> None:
    """Restore parameters and buffers in place."""
    for name, tensor in module_state(module).items():
        tensor.copy_(state[name])


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the memory of an optimiser for each parameter, as ``<number>.<name>``."""
    return {
        f"{n}.{name}": value
        for n, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Restore the memory of an optimiser."""
    parameters = _parameters(optimizer)
    for key, tensor in state.items():
        number, _, name = key.partition(".")
        parameter = parameters[int(number)]
        device = "cpu" if name == "step" else parameter.device  # PyTorch counts there
        optimizer.state[parameter][name] = tensor.to(device, copy=True)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def of_modules(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the tensors of a party's modules by name, that of the module in front where there are several."""
    if len(modules) == 1:
        (only,) = modules.values()
        return dict(only.state_dict())
    states = (named(name, module.state_dict()) for name, module in modules.items())
    return {name: tensor for state in states for name, tensor in state.items()}
