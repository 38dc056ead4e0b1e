"""Rules of quadrature over [0, 1]."""

from __future__ import annotations

from functools import cache

import numpy as np

from vflsim.timing.floats import Floats


@cache
def gauss(count: int) -> tuple[Floats, Floats]:
    """Give nodes and weights of Gauss's quadrature over [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def double_exponential(step: float, reach: float = 3.2) -> tuple[Floats, Floats]:
    """Give nodes and weights on [0, 1] of the tanh–sinh rule, for singularities at the ends (Takahasi & Mori 1974)."""
    t = np.arange(-reach, reach + step / 2, step)
    nodes = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
    weights = np.cosh(t) * nodes * (1 - nodes)
    return np.minimum(nodes, 1 - 2.0**-53), weights / weights.sum()
