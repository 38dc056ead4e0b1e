"""Integrals by ``scipy.integrate.quad_vec``, and rules of quadrature over [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import numpy as np

from vflsim.timing.floats import Floats, floats

_RELATIVE: Final = 1e-11
_MOST_INTERVALS: Final = 2_000


def integral(f: Callable[[Floats], Floats], edges: Iterable[float]) -> tuple[Floats, float]:
    """Give integrals of a vector function over the panels between ``edges``, and the largest absolute error of them.

    ``f`` maps (n,) points to (k, n) values of about the same size; the integrals are (k,). Put an edge where ``f``
    jumps. All panels are folded onto [0, 1], and are halved together where ``f`` has kinks or singular derivatives.
    """
    from scipy.integrate import quad_vec  # brings scipy.optimize, which most runs do without

    ends = np.unique(np.fromiter(edges, np.float64))
    left, width = ends[:-1], np.diff(ends)

    def folded(u: float) -> Floats:
        return floats((f(left + width * u) * width).sum(axis=1))

    found, error = quad_vec(folded, 0.0, 1.0, epsrel=_RELATIVE, norm="max", limit=_MOST_INTERVALS)[:2]
    return floats(found), float(error)


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
