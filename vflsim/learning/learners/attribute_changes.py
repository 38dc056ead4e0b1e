"""Compare the contents of an object's attributes at two times, to find what has changed."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from operator import is_
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.learning.learners.graphs import KeptGraph
from vflsim.learning.learners.party_model import PartyModel

Content: TypeAlias = Any
"""What compares equal for equal contents; it refers to what it compares by identity."""

ATOMS = frozenset((int, str, bool, type(None), bytes, complex, torch.dtype, torch.device))
LONG = 1_000
"""Elements of a container; those of a longer one are compared by identity."""
SMALL = 4_096
"""Elements of an array or tensor. Larger tensors are compared by PyTorch's count of changes, larger arrays in part."""
DEEP = 20
_LOOKED_INTO = (PartyModel, KeptGraph, EmbeddingTable, nn.Module, torch.optim.Optimizer, LRScheduler, SimpleNamespace)
"""Classes of libraries and of vflsim that operations change. Vflsim's others only change in the timing plane, which a
resumed run repeats."""
_CONTAINERS = (list, tuple, deque, dict, set, frozenset, bytearray)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random, count)
_COMPARED = (Tensor, np.ndarray, *_CONTAINERS, *_GENERATORS)
_OF_MODULES = frozenset(vars(nn.Module()))
_NONE = object()


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A thing that is compared by identity, and by how often it has been changed."""

    thing: Any
    version: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Observed) and self.thing is other.thing and self.version == other.version


@dataclass(frozen=True, slots=True, eq=False)
class Long:
    """Many elements, compared by identity."""

    elements: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Long) or len(self.elements) != len(other.elements):
            return False
        return all(map(is_, self.elements, other.elements))


class SeenTensor(tuple[Any, ...]):
    """A tensor's content; ``tensor`` is the tensor."""

    tensor: Tensor


class Attributes:
    """The attributes of an object at one time: the values, and the contents of those that can change in place.

    Those ``skipped`` do not count; things whose id is ``held`` have no content.
    """

    __slots__ = ("_inner", "_seen", "_values")

    def __init__(self, thing: Any, skipped: Collection[str] = (), held: Collection[int] = ()) -> None:
        self._seen = {id(thing), *held}
        self._values = {name: value for name, value in vars(thing).items() if name not in skipped}
        self._inner = {
            name: _of(value, self._seen, 0)
            for name, value in self._values.items()
            if id(value) not in self._seen and _can_change(type(value))  # type: ignore[arg-type]  # classes are hashable
        }

    def changed(self, thing: Any, now: Attributes, kept: Callable[[], Collection[int]] = tuple) -> list[str]:
        """Return the attributes of ``thing`` whose contents differ ``now``, but for ``kept`` storages of tensors.

        ``kept`` returns addresses. A ``cached_property`` does not count when it is made: it follows from what does not
        change.
        """
        if self._is_as(now):
            return []
        kind = type(thing)
        lazy = {name for each in kind.__mro__ for name, it in vars(each).items() if isinstance(it, cached_property)}
        names = [name for name in {**self._values, **now._values} if name in self._values or name not in lazy]
        return [name for name in names if _differ(self._content(name, kind), now._content(name, kind), kept)]

    def _is_as(self, other: Attributes) -> bool:
        """Whether all values are the same objects, with the same contents."""
        return (
            self._values.keys() == other._values.keys()
            and all(map(is_, self._values.values(), other._values.values()))
            and self._inner == other._inner
        )

    def _content(self, name: str, kind: type) -> Content:
        if name in self._inner:
            return self._inner[name]
        if name in self._values:
            return _of(self._values[name], self._seen, 0)
        return _of(getattr(kind, name, _NONE), set(), 0)  # a class may have defaults


def attributes_of_module(module: nn.Module) -> Attributes:
    """Return the attributes of one module: what is neither a parameter, buffer, module nor hook.

    Tensors count for nothing: most are kept for somebody to look at, such as the latest activations.
    """
    looked_at = {name for name, value in vars(module).items() if value is None or isinstance(value, Tensor)}
    return Attributes(module, _OF_MODULES | looked_at)


def _differ(one: Content, two: Content, kept: Callable[[], Collection[int]]) -> bool:
    if one == two:
        return False
    if isinstance(one, SeenTensor) and isinstance(two, SeenTensor):
        return two.tensor.untyped_storage().data_ptr() not in kept()
    if type(one) is type(two) is tuple and len(one) == len(two):
        return any(_differ(*pair, kept) for pair in zip(one, two, strict=True))
    return True


def _of(value: Any, seen: set[int], depth: int) -> Content:
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is float:
        return value if value == value else "nan"
    if isinstance(value, Tensor):
        return _of_tensor(value)
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(np.asarray(value), value)
    if id(value) in seen or depth == DEEP:
        return None
    if isinstance(value, _CONTAINERS):
        return _of_container(value, seen | {id(value)}, depth)
    return _of_object(value, seen | {id(value)}, depth)


def _of_tensor(tensor: Tensor) -> SeenTensor:
    if tensor.numel() <= SMALL and tensor.device.type == "cpu" and tensor.layout is torch.strided:
        plain = tensor.detach().contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor
        content = SeenTensor((tensor.dtype, tensor.shape, plain.numpy().tobytes()))
    else:
        content = SeenTensor((Observed(tensor, -1 if tensor.is_inference() else tensor._version),))
    content.tensor = tensor
    return content


def _of_array(array: np.ndarray[Any, Any], value: Any) -> Content:
    if array.dtype.hasobject:
        return Observed(value)
    if array.size <= SMALL:
        return array.dtype.str, array.shape, array.tobytes()
    return Observed(value), array.flat[:: array.size // SMALL].tobytes()


def _of_container(value: Any, seen: set[int], depth: int) -> Content:
    if isinstance(value, bytearray):
        return bytes(value)
    if len(value) > LONG:
        return (Long(tuple(value)), Long(tuple(value.values()))) if isinstance(value, dict) else Long(tuple(value))
    if isinstance(value, set | frozenset):
        return frozenset(value)
    elements = (*value, *value.values()) if isinstance(value, dict) else value
    return (type(value).__name__, *[_of(each, seen, depth + 1) for each in elements])


def _of_object(value: Any, seen: set[int], depth: int) -> Content:
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return str(value.get_state())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, count):
        return repr(value)
    if not _can_change(type(value)):  # type: ignore[arg-type]  # classes are hashable
        return Observed(value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name[:2] != "__"]
    slots = [_of(getattr(value, name, None), seen, depth + 1) for name in names]
    return (type(value).__qualname__, _of(dict(getattr(value, "__dict__", {})), seen, depth + 1), *slots)


@cache
def _can_change(kind: type) -> bool:
    """Whether objects of a class can change in place, in a way that counts."""
    if kind in ATOMS or issubclass(kind, float | np.generic):
        return False
    return issubclass(kind, _COMPARED) or _is_looked_into(kind)


def _is_looked_into(kind: type) -> bool:
    """Whether objects of a class are compared by their attributes: those of users' classes, and of some others."""
    if issubclass(kind, _LOOKED_INTO):
        return True
    if issubclass(kind, type | Operation | Handle):
        return False
    module = kind.__module__.partition(".")[0]
    if module in ("vflsim", "builtins") or module in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file
