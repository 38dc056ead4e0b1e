"""What a party remembers in ``kept``, as named tensors and back: tensors as they are, plain data as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from vflsim.errors import CheckpointError
from vflsim.files import parsed_json
from vflsim.learning.states import State

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
