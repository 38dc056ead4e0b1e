"""Integrals with estimates of their errors, and rules of quadrature over [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from vflsim.timing.floats import Floats

RELATIVE = 1e-11
"""The relative error at which the quadrature stops."""
_MOST_PANELS = 20_000

# Gauss–Kronrod, 7 and 15 nodes on [-1, 1] (Kronrod 1965): the difference of the two is the estimate of the error.
_NODES = np.array([
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144691693013, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
])  # fmt: skip
_KRONROD = np.array([
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
])  # fmt: skip
_GAUSS = np.array([
    0.129484966168869693270611432679082, 0.279705391489276667901467771423780, 0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
])  # fmt: skip
_X = np.concatenate([-_NODES, _NODES[-2::-1]])
_K = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
_G = np.zeros(15)
_G[1::2] = np.concatenate([_GAUSS, _GAUSS[-2::-1]])


def integral(f: Callable[[Floats], Floats], edges: Iterable[float]) -> tuple[Floats, Floats]:
    """Give integrals of a vector function over the panels between ``edges``, and estimates of their absolute errors.

    ``f`` maps (n,) points to (k, n) values; the results are (k,). Panels are halved where the estimate is too large,
    which copes with kinks and with singularities of derivatives; put an edge where ``f`` jumps.
    """
    ends = np.unique(np.fromiter(edges, np.float64))
    a, b = ends[:-1], ends[1:]
    total: Floats | float = 0.0
    uncertain: Floats | float = 0.0
    while True:
        half = (b - a) / 2
        points = (a + b)[:, None] / 2 + half[:, None] * _X
        values = f(points.ravel()).reshape(-1, *points.shape)
        value, error = values @ _K * half, np.abs(values @ (_K - _G)) * half
        # A panel is halved while its part of the error is too large, in proportion to the number of panels.
        allowed = RELATIVE * np.abs(total + value.sum(axis=1)) / max(len(a), 32)
        wrong = (error > allowed[:, None]).any(axis=0) & (half > 1e-15 * np.abs(a + b))
        if len(a) > _MOST_PANELS:
            wrong[:] = False
        total, uncertain = total + value[:, ~wrong].sum(axis=1), uncertain + error[:, ~wrong].sum(axis=1)
        if not wrong.any():
            return np.asarray(total), np.asarray(uncertain)
        middle = (a + b)[wrong] / 2
        a, b = np.concatenate([a[wrong], middle]), np.concatenate([middle, b[wrong]])


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
