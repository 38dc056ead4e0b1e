"""Rehearse a run on a GPU where there is none: tensors without values, host reads counted, mixed devices found."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vflsim

aten = torch.ops.aten
PACKAGE = str(Path(vflsim.__file__).parent) + "/"
MOVES = (aten._to_copy.default, aten.copy_.default)
"""Operations that may see two devices."""
LOOPS = (True, True, False, False)
"""Answers of ``any()``, in turns, so that a loop and one inside it both begin and end."""
GUARDS = {"codecs/round.py"}
"""Files where ``any()`` finds what is not allowed."""


class Rehearsal(TorchDispatchMode):
    """Runs tensors on the ``meta`` device, which have shapes and no values, as a GPU would have to run them.

    ``reads`` counts, by the file of the package, what waits for the device: values as Python numbers, copies to the
    CPU, and rows chosen by a mask, whose number the host has to know. A value that is read is a constant: finite,
    positive; ``all()`` holds. ``launches`` counts operations there, but no views. ``mixed`` has operations on tensors
    of several devices; a CPU scalar beside others is allowed, as PyTorch allows it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.mixed: list[str] = []
        self.launches = 0
        self._any: list[Tensor] = []
        self._asked = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        first = tensors[0] if tensors else None
        away = first is not None and first.device.type == "meta"
        self.launches += away and not func.is_view
        if len({each.device.type for each in tensors if each.ndim}) > 1 and func not in MOVES:
            self.mixed.append(f"{func} at {_place()}")
        if away and func is aten._local_scalar_dense.default:
            self.reads[_file()] += 1
            return self._constant(first)
        if away and func is aten.equal.default:
            self.reads[_file()] += 1
            return True
        if away and func is aten._to_copy.default and torch.device(kwargs.get("device") or "meta").type == "cpu":
            self.reads[_file()] += 1
            return torch.zeros(first.shape, dtype=kwargs.get("dtype") or first.dtype)
        if away and func is aten.nonzero.default:
            self.reads[_file()] += 1
            return torch.empty((first.numel(), first.ndim), dtype=torch.int64, device="meta")
        if away and func in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
            args = (args[0], [self._rows(each) for each in args[1]], *args[2:])
        result = func(*args, **kwargs)
        if func is aten.any.default:
            self._any.append(result)
        return result

    def _rows(self, index: Tensor | None) -> Tensor | None:
        """Return a mask as the indices of all rows."""
        if index is None or index.dtype != torch.bool:
            return index
        self.reads[_file()] += 1
        assert index.ndim == 1, "masks of rows only"
        return torch.empty(len(index), dtype=torch.int64, device=index.device)

    def _constant(self, scalar: Tensor) -> bool | int | float:
        if any(scalar is each for each in self._any):
            self._any.clear()
            if _file() in GUARDS:
                return False
            self._asked += 1
            return LOOPS[(self._asked - 1) % len(LOOPS)]
        return True if scalar.dtype == torch.bool else 0.5 if scalar.is_floating_point() else 1


def _innermost() -> FrameType | None:
    """Return the innermost frame of the package."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def _file() -> str:
    """Return the innermost file of the package that is being executed; the caller's own without any."""
    inside = _innermost()
    return "outside" if inside is None else inside.f_code.co_filename.removeprefix(PACKAGE)


def _place() -> str:
    inside = _innermost()
    return "outside" if inside is None else f"{_file()}:{inside.f_lineno}"
