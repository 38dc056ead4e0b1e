"""The skewness of a law, for rules of thumb on the number of draws that a mean needs."""

from __future__ import annotations

import math

import numpy as np

from vflsim.timing.law import Law

_STEPS = 600
_LEAST = 1e-13
"""The smallest probability of slower times that is used; below it, cdfs are round-off."""


def skewness(law: Law) -> float:
    """Estimate E (X − μ)³ / σ³ within a few percent: 2 for an exponential law, 0 for a constant.

    It is ∫ ((q(u) − μ) / σ)³ du, by the midpoint rule in ln(1 − u), so that slow times count as often as they occur.
    Where it is infinite, the result is large, as of a law that is cut at a probability of 1e-13. Infinite without a
    finite variance.
    """
    mean, variance = law.expectation(), law.variance()
    if not math.isfinite(variance):
        return math.inf
    if variance <= 0:
        return 0.0
    edges = np.linspace(0.0, -math.log(_LEAST), _STEPS + 1)
    weights = np.exp(-edges[:-1]) - np.exp(-edges[1:])
    levels = -np.expm1(-(edges[:-1] + edges[1:]) / 2)
    scaled = (law.quantile(levels) - mean) / math.sqrt(variance)
    return float((scaled**3 * weights).sum())
