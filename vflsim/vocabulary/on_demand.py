"""Libraries that take long to load: from the first use of one of their names on, not from their import on.

Timing needs shapes and dtypes alone, and PyTorch takes longer to load than they take to compute. Before PyTorch is
there, ``dtype``, ``cpu`` and ``TensorOutline`` stand for its dtypes, devices and tensors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    import pandas as pd
    import sympy
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.nn import functional
else:

    class _Library:
        """Stands for a module, loads it when asked for a name, and then gives its place to it."""

        def __init__(self, name: str) -> None:
            self.__name__ = name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # Python looks for these, as does whoever inspects a module
                raise AttributeError(name)
            module = import_module(self.__name__)
            _give_way(self, module)
            return getattr(module, name)

    class _TensorType(type):
        """No object is a tensor before PyTorch is there."""

        def __instancecheck__(cls, thing: object) -> bool:
            return loaded() and isinstance(thing, import_module("torch").Tensor)

    class Tensor(metaclass=_TensorType):
        """Stands for PyTorch's tensors in annotations and in tests of types."""

    def _give_way(place: object, thing: object) -> None:
        """Put what has been loaded in the place of what stood for it, in all modules of this package."""
        for name, module in [*sys.modules.items()]:
            if name.partition(".")[0] == "vflsim":
                for key, value in [*vars(module).items()]:
                    if value is place:
                        setattr(module, key, thing)

    names = "pandas", "sympy", "torch", "torch.nn", "torch.nn.functional"
    pd, sympy, torch, nn, functional = map(_Library, names)

__all__ = [
    "OnDemand",
    "Tensor",
    "TensorOutline",
    "cpu",
    "dtype",
    "functional",
    "load",
    "loaded",
    "nn",
    "pd",
    "real",
    "sympy",
    "torch",
    "without_gradients",
]
KeyT = TypeVar("KeyT")
P = ParamSpec("P")
R = TypeVar("R")


def load() -> None:
    """Load PyTorch, so that all that is made from now on is PyTorch's."""
    import_module("torch")


def loaded() -> bool:
    """Whether PyTorch is there."""
    return "torch" in sys.modules


@dataclass(frozen=True, slots=True, eq=False)
class _Dtype:
    """Stands for a dtype of PyTorch, and equals it, but does not hash alike: no mapping may have both as keys."""

    name: str
    itemsize: int
    is_floating_point: bool
    is_complex = False

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return f"torch.{self.name}"


_DTYPES = {
    name: _Dtype(name, size, "float" in name)
    for size, names in {
        8: ("float64", "int64"),
        4: ("float32", "int32"),
        2: ("float16", "bfloat16", "int16"),
        1: ("int8", "uint8", "bool"),
    }.items()
    for name in names
}


class _Cpu:
    """Stands for PyTorch's device of this name."""

    type, index = "cpu", None

    def __str__(self) -> str:
        return "cpu"


_CPU = _Cpu()


def dtype(name: str) -> torch.dtype:
    """Return the dtype of this name; before PyTorch is there, what stands for it."""
    return getattr(torch, name) if loaded() else cast("torch.dtype", _DTYPES[name])


def cpu() -> torch.device:
    """Return the CPU as a device; before PyTorch is there, what stands for it."""
    return torch.device("cpu") if loaded() else cast("torch.device", _CPU)


def real(thing: Any) -> Any:
    """Return the dtype or device of PyTorch that ``thing`` stands for, or is."""
    if isinstance(thing, _Dtype):
        return getattr(torch, thing.name)
    return torch.device("cpu") if thing is _CPU else thing


@dataclass(frozen=True, slots=True, eq=False)
class TensorOutline:
    """Shape and dtype of a tensor that nobody has made yet, on the CPU.

    Example::

        TensorOutline((3, 2), dtype("float32")).nbytes  # 24
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    array: NDArray[Any] | None = None
    """The numbers, where they are known."""

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return cpu()

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def cpu(self) -> TensorOutline:
        """Return itself."""
        return self

    def numpy(self) -> NDArray[Any]:
        """Return the numbers."""
        assert self.array is not None, "only of what has been read"
        return self.array

    def numel(self) -> int:
        """Count the elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> TensorOutline:
        """Return the outline of some rows."""
        count = len(range(*rows.indices(self.shape[0])))
        array = None if self.array is None else self.array[rows]
        return TensorOutline((count, *self.shape[1:]), self.dtype, array)


class OnDemand(Mapping[KeyT, "Tensor"], Generic[KeyT]):
    """Tensors by key, each made when it is first asked for; before PyTorch is there, their outlines."""

    def __init__(self, outlines: Mapping[KeyT, TensorOutline], make: Callable[[KeyT], Tensor]) -> None:
        self._outlines, self._make = outlines, make
        self._made: dict[KeyT, Tensor] = {}

    def __getitem__(self, key: KeyT) -> Tensor:
        if key in self._made:
            return self._made[key]
        if not loaded():
            return cast("Tensor", self._outlines[key])
        self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._outlines)

    def __len__(self) -> int:
        return len(self._outlines)


def without_gradients(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function compute no gradients, as ``torch.no_grad`` does where PyTorch is there already."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.no_grad():
            return function(*args, **kwargs)

    return called
