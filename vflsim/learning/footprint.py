"""The memory of a forward pass, counted on the meta device: shapes, no values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vflsim.learning.models.build import drafted


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a forward pass of some rows, without the weights.

    ``kept`` for the backward pass, input included; ``largest``: what the most demanding operation reads and writes;
    ``output``.
    """

    kept: int = 0
    largest: int = 0
    output: int = 0


def footprint(build: Callable[[], nn.Module], shape: tuple[int, ...], rows: int, dtype: torch.dtype) -> Footprint:
    """Count the bytes of a forward pass of ``rows`` rows of ``shape``; none where a user's module needs values."""
    module = drafted(build)
    if module is None:
        return Footprint()
    module = module.to(dtype)
    weights = {_storage(tensor) for tensor in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}
    held: list[Tensor] = []  # so that no two tensors share an address

    def keep(tensor: Tensor) -> Tensor:
        held.append(tensor)
        kept[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    counting = _Counting(weights)
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), counting:
            output = module.train()(torch.empty((rows, *shape), dtype=dtype, device="meta"))
        written = output.untyped_storage().nbytes()
    except Exception:  # a user's module may need values
        return Footprint()
    return Footprint(sum(size for key, size in kept.items() if key not in weights), counting.largest, written)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the most bytes that one operation reads and writes beside ``weights``."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights, self.largest = weights, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves((args, kwargs, output)) if isinstance(each, Tensor)]
        self.largest = max(self.largest, _bytes(tensors, self._weights))
        return output


def _bytes(tensors: Iterable[Tensor], without: set[int]) -> int:
    """The bytes of distinct storages, some left out."""
    sizes = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(size for key, size in sizes.items() if key not in without)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
