"""Arrays of floats, and sums of floats that round once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
"""An array of floats. Example: ``def sample(self, u: Floats) -> Floats: return -np.log1p(-u)``."""


def floats(x: ArrayLike) -> Floats:
    """Give ``x`` as a float64 array."""
    return np.asarray(x, dtype=np.float64)


def exact_sum(values: Iterable[float]) -> float:
    """Give the exact sum, rounded once; inf where it is beyond the floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf
