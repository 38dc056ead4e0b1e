"""Goodness of fit: the Kolmogorov–Smirnov distance, and its p-value for a law that was fitted to the same data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vflsim.streams import BLOCK, SHARED, Uniforms
from vflsim.timing.base import Delay
from vflsim.timing.floats import Floats

SAMPLES = 199
"""Samples that a p-value is simulated from, so that it is a multiple of 1/200."""
SAMPLE_SIZE = 1000
"""Values in such a sample, at most: beyond, √n times the distance hardly depends on n."""


def ks_statistic(delay: Delay, observed: Floats) -> float:
    """Give the largest distance between the cdf and that of the observations, which are in order."""
    levels, count = delay.cdf(observed), len(observed)
    steps = np.arange(count + 1) / count
    return float(max(np.max(steps[1:] - levels), np.max(levels - steps[:-1])))


def ks_p_value(delay: Delay, method: Callable[[Floats], Delay], statistic: float, count: int) -> float:
    """Give the p-value of the distance of ``count`` observations from ``delay``, fitted to them by ``method``.

    It is the share of samples of the fitted law whose distance is as large, after the same fit (a parametric bootstrap,
    as Lilliefors 1967). Samples that ``method`` cannot fit count for nothing. The samples' stream is fixed: equal data
    have equal p-values.
    """
    size = min(count, SAMPLE_SIZE)
    uniforms = Uniforms(0, SHARED, "fit.samples").blocks(0, -(-SAMPLES * size // BLOCK), delay.uniforms)
    samples = np.sort(np.asarray(delay.sample(uniforms))[: SAMPLES * size].reshape(SAMPLES, size))
    fitted = as_large = 0
    for sample in samples:
        try:
            distance = ks_statistic(method(sample), sample)
        except ValueError:  # no member of the family, or an impossible one, such as with an infinite mean
            continue
        fitted += 1
        as_large += distance * math.sqrt(size) >= statistic * math.sqrt(count)
    return (1 + as_large) / (1 + fitted)
