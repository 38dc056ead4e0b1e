"""All that an object remembers, as plain data: for tests that something is not changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor

CACHES = {"_flops"}
"""What is remembered only to be faster."""


def everything(thing: Any, seen: frozenset[int] = frozenset()) -> Any:
    """All that can be reached from an object, as plain data to compare."""
    if isinstance(thing, Tensor):
        return thing.detach().numpy().tobytes()
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, Mapping):
        return {str(key): everything(value, seen) for key, value in thing.items()}
    if isinstance(thing, list | tuple | set | frozenset):
        return [everything(each, seen) for each in thing]
    if isinstance(thing, FunctionType | MethodType | type) or not hasattr(thing, "__dict__") or id(thing) in seen:
        return repr(thing) if isinstance(thing, int | float | str | None) else type(thing).__name__
    inside = {name: each for name, each in vars(thing).items() if name not in CACHES}
    return everything(inside, seen | {id(thing)})
