"""The share of a law's variance in its slowest draws, which may not occur in a run of few draws."""

from __future__ import annotations

import math

import numpy as np

from vflsim.timing.floats import Floats
from vflsim.timing.law import Law
from vflsim.timing.quadrature import integral

FEWEST = 3
"""The least number of draws: the slowest third of a symmetric law has less than half of its variance."""


def tail_share(law: Law, draws: float) -> float:
    """Return the share of the variance that the slowest of so many ``draws`` (at least three) contributes.

    It is ∫ (q(u) − μ)² du over the levels u above 1 − 1/draws, divided by the variance: 1 for an infinite variance, 0
    for a constant. With a survival function S and the quantile a there it is m₂ − ∫₀^a 2x (S(x) − 1/draws) dx for the
    second moment, from which the terms of the mean are subtracted.
    """
    variance, mean = law.variance(), law.expectation()
    if not math.isfinite(variance):
        return 1.0
    if variance <= 0:
        return 0.0
    part = 1 / max(draws, FEWEST)
    edge = float(law.quantile(1 - part))
    second, first = variance + mean * mean, mean
    if edge > 0:
        breaks = [float(x) for x in law.breaks if 0 < x < edge]

        def below(x: Floats) -> Floats:
            more = law.survival(x) - part
            return np.stack([2 * x / edge * more, more])

        # Doubling distances from the end: a law may be much narrower than its quantile is long.
        inner = [edge * (1 - 0.5**k) for k in range(1, 12)] + [edge * 0.5**k for k in range(2, 30)]
        lost, _ = integral(below, [0.0, *breaks, *inner, edge])
        second, first = second - edge * float(lost[0]), first - float(lost[1])
    beyond = second - 2 * mean * first + mean * mean * part
    return min(max(beyond / variance, 0.0), 1.0)
