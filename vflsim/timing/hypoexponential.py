"""The sum of independent exponential times, in a numerically stable form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincc, gammaln, xlogy
from typing_extensions import override

from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law

_CONDITION: Final = 1e3  # of partial fractions
_STAGES: Final = 256  # more than the fewest possible; for means within a factor of 2
_ALIKE: Final = 1.25  # ratio of means


@final
class Hypoexponential(Law):
    """The sum of independent exponentials of the given means."""

    def __init__(self, means: Sequence[float]) -> None:
        self.means = np.sort(np.array(means))
        self._equal = bool(np.all(self.means == self.means[0]))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.means[:, None] / (self.means[:, None] - self.means[None, :])
            np.fill_diagonal(ratios, 1.0)
            self._factors = ratios.prod(axis=1)

    @property
    def stable(self) -> bool:
        """Whether the closed form is numerically stable: means are equal (Erlang) or well apart (partial fractions)."""
        return self._equal or bool(np.all(np.isfinite(self._factors)) and np.abs(self._factors).sum() < _CONDITION)

    @property
    @override
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    @override
    def expectation(self) -> float:
        return float(self.means.sum())

    @override
    def variance(self) -> float:
        return float(self.means @ self.means)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        at = np.maximum(floats(x), 0.0)
        if self._equal:
            return np.asarray(gammaincc(len(self.means), at / self.means[0]))
        if self.stable:
            return np.asarray(np.clip(np.exp(-at[..., None] / self.means) @ self._factors, 0.0, 1.0))
        stages, masses, rate = self._stages
        return np.asarray(np.minimum(gammaincc(stages, at[..., None] * rate) @ masses, 1.0))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        if self._equal:
            return np.asarray(gammainc(len(self.means), np.maximum(floats(x), 0.0) / self.means[0]))
        return 1.0 - self.survival(x)

    @override
    def density(self, x: ArrayLike) -> Floats:
        at = np.maximum(floats(x), 0.0)
        if self._equal:
            z, count = at / self.means[0], len(self.means)
            height = np.exp(xlogy(count - 1, z) - z - gammaln(count)) / self.means[0]
        elif self.stable:
            height = np.maximum(np.exp(-at[..., None] / self.means) @ (self._factors / self.means), 0.0)
        else:
            stages, masses, rate = self._stages
            z = at[..., None] * rate
            height = np.exp(xlogy(stages - 1, z) - z - gammaln(stages)) @ masses * rate
        return np.where(floats(x) >= 0, height, 0.0)

    @cached_property
    def _stages(self) -> tuple[Floats, Floats, float]:
        """The numbers of stages, their probabilities and their common rate, as an Erlang law of random order.

        An exponential is a geometric number of faster ones: all terms are positive, where fractions would cancel.
        """
        from scipy.signal import lfilter  # slow to import, and rarely needed

        masses = np.zeros(len(self.means) + _STAGES)
        masses[0] = 1.0
        for ends in self.means[0] / self.means:
            masses = lfilter([0.0, ends], [1.0, ends - 1.0], masses)
        stages = np.flatnonzero(masses > 1e-40)
        return stages.astype(np.float64), masses[stages], 1.0 / float(self.means[0])


@lru_cache(1024)
def exponentials(means: tuple[float, ...]) -> tuple[Law, ...]:
    """Return laws whose sum is the sum of exponentials, each in a numerically stable form.

    Partial fractions of nearly equal means would cancel: these means go through the chain of their stages.
    """
    together = Hypoexponential(means)
    if together.stable:
        return (together,)
    clusters: list[list[float]] = []
    for mean in sorted(means):
        if clusters and mean <= min(_ALIKE * clusters[-1][-1], 2 * clusters[-1][0]):
            clusters[-1].append(mean)
        else:
            clusters.append([mean])
    singles = Hypoexponential([cluster[0] for cluster in clusters if len(cluster) == 1] or [1.0])
    if len(clusters) == sum(len(cluster) > 1 for cluster in clusters) or not singles.stable:
        return tuple(Hypoexponential(cluster) for cluster in clusters)
    return (singles, *(Hypoexponential(cluster) for cluster in clusters if len(cluster) > 1))
