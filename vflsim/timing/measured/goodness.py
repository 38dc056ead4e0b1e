"""Goodness of fit: the Kolmogorov–Smirnov distance, its p-value for a law fitted to the same data, and quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vflsim.streams import BLOCK, SHARED, Uniforms
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats

SAMPLES = 199
"""Samples that a p-value is simulated from, so that it is a multiple of 1/200."""
SAMPLE_SIZE = 1000
"""Values in such a sample, at most: beyond, √n times the distance hardly depends on n."""

_FITTED = SAMPLES // 2
"""With fewer fitted samples, p-values of 1 % could not come out."""
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
"""Of the quantiles that are shown."""
_BODY = 0.05, 0.95


class Quantile(NamedTuple):
    """The quantile of ``level`` of observations and of a law, in seconds.

    ``errors``: how many standard errors of the observations' cdf the law's cdf is away from ``level`` there.
    """

    level: float
    observed: float
    law: float
    errors: float

    @property
    def part(self) -> str:
        """The part of the law where it lies."""
        return "lower tail" if self.level < _BODY[0] else "tail" if self.level > _BODY[1] else "body"


def quantiles(delay: Delay, observed: Floats) -> list[Quantile]:
    """Give quantiles of observations in order beside those of a law, at the ``LEVELS`` that have some beyond them."""
    count = len(observed)
    levels = [level for level in LEVELS if count * min(level, 1 - level) >= 1]
    places = np.quantile(observed, levels, method="inverted_cdf")
    errors = [
        abs(float(delay.cdf(place)) - level) / math.sqrt(level * (1 - level) / count)
        for level, place in zip(levels, places, strict=True)
    ]
    laws = (float(delay.quantile(level)) for level in levels)
    return [*map(Quantile, levels, places.tolist(), laws, errors)]


def ks_statistic(delay: Delay, observed: Floats) -> float:
    """Give the largest distance between the cdf and that of the observations, which are in order."""
    levels, count = delay.cdf(observed), len(observed)
    steps = np.arange(count + 1) / count
    return float(max(np.max(steps[1:] - levels), np.max(levels - steps[:-1])))


def ks_p_value(delay: Delay, method: Callable[[Floats], Delay], statistic: float, count: int) -> float:
    """Give the p-value of the distance of ``count`` observations from ``delay``, fitted to them by ``method``.

    It is the share of samples of the fitted law whose distance is as large, after the same fit (a parametric bootstrap,
    as Lilliefors 1967). Samples that ``method`` cannot fit count for nothing; NaN if fewer than ``_FITTED`` are left.
    The samples' stream is fixed: equal data have equal p-values.
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
    return (1 + as_large) / (1 + fitted) if fitted >= _FITTED else math.nan
