"""States of parties as named tensors, restored exactly, with what they remember beside their models.

A state holds the tensors that its owner works on: write it before the owner continues. It has no names for things that
the owner has not made yet. Loading only reads a state. Tensors are restored in place: views of them stay views, and
their layout in memory, which can change the last bits of later results, stays the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from vflsim.errors import CheckpointError
from vflsim.files import parsed_json
from vflsim.vocabulary.on_demand import Tensor, nn, torch

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


ALLOWED = "tensors, numbers, texts, bytes, None, and lists, tuples and mappings of these"
_TENSOR, _PLAIN, _PART = "kept", "plain", "part"


def as_state(kept: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return tensors that ``from_state`` reads. Raises ``CheckpointError`` for a value that cannot be kept."""
    state: dict[str, Tensor] = {}
    for name, value in kept.items():
        if isinstance(value, Tensor):
            state[f"{_TENSOR}.{name}"] = value.detach()
            continue
        parts: list[Tensor] = []
        text = json.dumps(_written(value, parts, f"kept[{name!r}]"))
        state[f"{_PLAIN}.{name}"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        state |= {f"{_PART}.{number}.{name}": part.detach() for number, part in enumerate(parts)}
    return state


def from_state(state: State) -> dict[str, Any]:
    """Return what ``as_state`` was given, in its order: copies."""
    kept: dict[str, Any] = {}
    for key, tensor in state.items():
        form, _, name = key.partition(".")
        if form == _TENSOR:
            kept[name] = tensor.clone()
        elif form == _PLAIN:
            plain = parsed_json(tensor.numpy().tobytes(), math.inf)
            kept[name] = _read(plain, state, name)
    return kept


def tensors_in(kept: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value that is kept."""
    if isinstance(kept, Tensor):
        yield kept
    elif isinstance(kept, Mapping | list | tuple):
        for each in kept.values() if isinstance(kept, Mapping) else kept:
            yield from tensors_in(each)


def _written(value: Any, parts: list[Tensor], where: str) -> Any:
    kind = type(value)
    if kind in (int, float, str, bool, type(None)):
        return value
    if isinstance(value, Tensor):
        parts.append(value)
        return ["tensor", len(parts) - 1]
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind in (list, tuple):
        return [kind.__name__, *[_written(each, parts, f"{where}[{n}]") for n, each in enumerate(value)]]
    if kind is dict:
        return ["dict", *[[_written(part, parts, f"{where}[{key!r}]") for part in (key, value[key])] for key in value]]
    raise CheckpointError(f"{where} is a {kind.__name__}, which a checkpoint cannot keep", allowed=ALLOWED)


def _read(plain: Any, state: State, name: str) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain
    if kind == "tensor":
        return state[f"{_PART}.{rest[0]}.{name}"].clone()
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind == "dict":
        return {_read(key, state, name): _read(value, state, name) for key, value in rest}
    elements = [_read(each, state, name) for each in rest]
    return tuple(elements) if kind == "tuple" else elements
