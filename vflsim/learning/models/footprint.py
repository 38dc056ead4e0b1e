"""What passes of a model cost, counted without making them: memory by a few rows or by shapes, and FLOPs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from vflsim.learning.models.build import drafted
from vflsim.learning.models.layers import ACTIVATIONS
from vflsim.learning.models.shapes import Footprint
from vflsim.vocabulary.on_demand import real

_SMALL = 2**26
_LAYERS = {nn.Sequential, nn.Linear, nn.Flatten, nn.Conv2d, nn.BatchNorm1d, *ACTIVATIONS.values()}
"""Layers whose printed form says all that their FLOPs depend on."""
_MOST_KNOWN = 1_000
"""Counts of FLOPs that are remembered at most."""
_FEW = 2, 4
"""Rows: batch normalisation cannot train on one."""


def footprint(build: Callable[[], nn.Module], shape: tuple[int, ...], rows: int, dtype: torch.dtype) -> Footprint:
    """Count the bytes of a forward pass of ``rows`` rows of ``shape``; none where a user's module cannot be counted.

    Models of up to ``_SMALL`` bytes pass a few rows of zeros through weights of zeros: bytes are linear in the rows.
    Larger ones pass all of them on the meta device, for which PyTorch imports its compiler.
    """
    outline = _outlined(build, shape, real(dtype))
    try:
        if isinstance(outline, nn.Module):
            return _counted(outline, _values(outline), torch.empty((rows, *shape), dtype=dtype, device="meta"))
    except Exception:  # a user's module may need other values
        return Footprint()
    few, more = outline
    return few.extended(more, (rows - _FEW[0]) / (_FEW[1] - _FEW[0]))


@lru_cache(maxsize=16)  # a batch and an evaluation ask for one model, and so do protocols
def _outlined(
    build: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Footprint, Footprint] | nn.Module:
    """Return the footprints of ``_FEW`` rows; of a larger model its outline on the meta device."""
    module = drafted(build)
    if module is None:
        return Footprint(), Footprint()
    module = module.to(dtype).train()
    weights = _values(module)
    try:
        if _bytes(weights.values(), set()) > _SMALL:
            return module
        zeros = {key: torch.zeros(w.shape, dtype=w.dtype, requires_grad=w.requires_grad) for key, w in weights.items()}
        few, more = (_counted(module, zeros, torch.zeros((each, *shape), dtype=dtype)) for each in _FEW)
    except Exception:  # a user's module may need other values
        return Footprint(), Footprint()
    return few, more


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _counted(module: nn.Module, weights: dict[str, Tensor], x: Tensor) -> Footprint:
    storages = {_storage(tensor) for tensor in weights.values()}
    sizes: dict[int, int] = {}
    held: list[Tensor] = []  # so that no two tensors share an address

    def keep(tensor: Tensor) -> None:
        held.append(tensor)
        sizes[_storage(tensor)] = tensor.untyped_storage().nbytes()
        # Nothing to unpack: an output that the graph keeps would keep the graph, and both all weights, for ever.

    counting = _Counting(storages)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda nothing: nothing), counting:
        output = functional_call(module, weights, x)
    written = output.untyped_storage().nbytes()
    held.clear()  # the graph holds ``keep``
    return Footprint(sum(size for key, size in sizes.items() if key not in storages), counting.largest, written)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the most bytes that one operation reads and writes beside ``weights``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here: the wrapper that skips PyTorch's compiler would import it

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
    sizes = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(size for key, size in sizes.items() if key not in without)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def flops_of(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, input_gradient: bool = False
) -> tuple[float, float]:
    """Count the FLOPs of the forward and of the backward pass for an input of ``shape``.

    The backward pass is with respect to the weights, and to the input with ``input_gradient``.
    PyTorch's own counter runs a copy of the model on the meta device: shapes, no values. It counts matrix products and
    convolutions (two operations a multiply-add), which take most of the time, and not element-wise work. Models of the
    same layers of PyTorch, such as those of clients alike, are counted once.
    """
    dtype = real(dtype)
    if (layers := _layers(model)) is None:
        return _counted_flops(model, shape, dtype, input_gradient)
    key = (layers, shape, dtype, input_gradient)
    if key not in _known_flops:
        if len(_known_flops) >= _MOST_KNOWN:
            _known_flops.clear()
        _known_flops[key] = _counted_flops(model, shape, dtype, input_gradient)
    return _known_flops[key]


_known_flops: dict[tuple[object, ...], tuple[float, float]] = {}


def _layers(model: nn.Module) -> tuple[object, ...] | None:
    """Name all that the FLOPs of a model of ``_LAYERS`` depend on; None for a model that does anything else."""
    for each in model.modules():
        if type(each) not in _LAYERS or each._forward_hooks or each._forward_pre_hooks or "forward" in vars(each):
            return None
    return (repr(model), *(each.requires_grad for each in model.parameters()))


def _counted_flops(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, input_gradient: bool
) -> tuple[float, float]:
    ghost = copy.deepcopy(model).to("meta").train()
    inputs = torch.empty(shape, dtype=dtype, device="meta", requires_grad=input_gradient)
    with FlopCounterMode(display=False) as forward:
        output = ghost(inputs)
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return float(forward.get_total_flops()), float(backward.get_total_flops())
