"""Facts about the tail of a law: its skewness, and the share of the variance that its slowest draws have."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from vflsim.timing.laws.law import Law

FEWEST: Final = 3
"""The least number of draws: the slowest third of a symmetric law has less than half of its variance."""
_STEPS: Final = 600
_LEAST: Final = 1e-13
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


def tail_share(law: Law, draws: float) -> float:
    """Return the share of the variance that the slowest of so many ``draws`` (at least three) contributes.

    It is ∫ (q(u) − μ)² du over the levels u above 1 − 1/draws, divided by the variance: 1 for an infinite variance, 0
    for a constant. With the quantile a there, q(u) = a + (q(u) − a)⁺.
    """
    variance, mean = law.variance(), law.expectation()
    if not math.isfinite(variance):
        return 1.0
    if variance <= 0:
        return 0.0
    part = 1 / max(draws, FEWEST)
    edge = float(law.quantile(1 - part))
    (values, masses), (weight, grid) = law.atoms(), law.continuous
    over = np.maximum(values - edge, 0.0)
    first, second = float(over @ masses), float(over * over @ masses)
    if grid is not None:
        beyond = grid.beyond(edge)
        first, second = first + weight * beyond[0], second + weight * beyond[1]
    far = edge - mean
    return min(max((second + 2 * far * first + far * far * part) / variance, 0.0), 1.0)
