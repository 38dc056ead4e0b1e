"""The barrier of rounds in which late clients first finish their uploads, quick enough for many clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.analysis.interpolation import Interpolated
from vflsim.timing.analysis.law import Law, OfDelay, Point, union
from vflsim.timing.analysis.order import order_statistic
from vflsim.timing.analysis.quadrature import double_exponential
from vflsim.timing.base import Floats, floats
from vflsim.timing.numeric import gauss


@final
@dataclass(frozen=True)
class LateShares(Law):
    """max_m [(U_m − U₍R₎)⁺ + share_m]: when all have shared, counted from the R-th upload of the round before.

    ``clients`` are pairs of share and upload; uploads are continuous, or constants of which no two are equal. Given
    that the R-th upload comes at u, and is client m's, any other client is either there already and has shared by z,
    with probability P(U_j ≤ u) P(share_j ≤ z), or is late and has finished and shared by z, with
    P(U_j > u, U_j − u + share_j ≤ z). The Poisson–binomial recursion counts R − 1 of the first kind, and the integral
    goes over the levels of the law of U₍R₎ (of which m's part is its density times the chance of R − 1 before it).
    """

    clients: tuple[tuple[Law, Law], ...]
    responders: int

    @property
    @override
    def support(self) -> tuple[float, float]:
        low = max(share.support[0] for share, _ in self.clients)
        return low, max(share.support[1] + upload.support[1] for share, upload in self.clients)

    @property
    @override
    def breaks(self) -> tuple[float, ...]:
        return union(share for share, _ in self.clients)

    @override
    def variance(self) -> float:
        # Only the size of a grid for Interpolated, which asks before there are moments.
        return max(share.variance() + upload.variance() for share, upload in self.clients)

    @override
    def mean(self) -> float:
        """By a fixed rule, to some seven digits: an adaptive one asks for many more points."""
        return self._mean

    @cached_property
    def _mean(self) -> float:
        low, scale = self.support[0], math.sqrt(self.variance())
        if not 0 < scale < math.inf:
            return self._moments.mean
        edges = np.unique([low, *(x for x in self.breaks if low < x < math.inf), *(low + scale * _REACH)])
        if self.survival(edges[-1]) > _TAIL:
            return self._moments.mean
        width = np.diff(edges)[:, None]
        left = self.survival(edges[:-1, None] + width * _GAUSS)
        return low + float((left @ _GAUSS_WEIGHTS) @ width[:, 0])

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        points = floats(x)
        parts = np.array_split(points.ravel(), 1 + points.size // _TOGETHER)
        return np.concatenate([self._shared(part) for part in parts]).reshape(points.shape)

    def _shared(self, z: Floats) -> Floats:
        """P(all have shared by z), at points (n,)."""
        there, late, last = [], [], []
        for (share, upload), before, weight in zip(self._kinds, self._before, self._weights, strict=True):
            shared = share.cdf(z)[:, None]
            there.append(before * shared)
            late.append(_late(share, upload, self._when[0], before, z))
            last.append(weight * shared)
        return np.asarray(self._one_last(there, late, last).sum(axis=1).clip(0.0, 1.0))

    def _one_last(self, there: Sequence[Floats], late: Sequence[Floats], last: Sequence[Floats]) -> Floats:
        """The sum over clients of ``last``, times the chance that R − 1 of the others are ``there`` and all else late.

        By the Poisson–binomial recursion, in two states: the last of those in time is still to come, or has come.
        """
        shape = self.responders, *np.broadcast_shapes(*(each.shape for each in there))
        open_, closed = np.zeros(shape), np.zeros(shape)
        open_[0] = 1.0
        for kind in self._members:
            for state in (closed, open_):
                before = state[:-1] * there[kind]
                state *= late[kind]
                state[1:] += before
                if state is closed:
                    closed += open_ * last[kind]
        return np.asarray(closed[-1])

    @cached_property
    def _kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(self.clients))

    @cached_property
    def _members(self) -> tuple[int, ...]:
        """The kind of every client."""
        return tuple(self._kinds.index(client) for client in self.clients)

    @cached_property
    def _before(self) -> tuple[Floats, ...]:
        """P(U ≤ u) of every kind, at the nodes."""
        return tuple(upload.cdf(self._when[0]) for _, upload in self._kinds)

    @cached_property
    def _when(self) -> tuple[Floats, Floats]:
        """Times at which the R-th upload may come, and their probabilities: between kinks, smoothly in the levels."""
        uploads = [upload for _, upload in self.clients]
        law = order_statistic(uploads, self.responders)
        kinks = np.array([x for x in union(uploads) if np.isfinite(x)])
        ends = np.unique(np.concatenate([[0.0, 1.0], law.cdf(kinks), law.cdf(np.nextafter(kinks, -np.inf))]))
        width = np.diff(ends)[:, None]
        levels = (ends[:-1, None] + width * _U).ravel()
        return law.quantile(np.minimum(levels, 1 - 2.0**-53)), (width * _W).ravel()

    @cached_property
    def _weights(self) -> tuple[Floats, ...]:
        """How likely each kind is the R-th at a node, but for the chance of R − 1 before it; all in all 1."""
        u, probability = self._when
        densities = [_density(upload, u) for _, upload in self._kinds]
        constants = [np.where(u == upload.support[0], isinstance(upload, Point), 0.0) for _, upload in self._kinds]
        at_one = sum(constants) > 0
        last = [np.where(at_one, fixed, f) for fixed, f in zip(constants, densities, strict=True)]
        whole = self._one_last(self._before, [1.0 - before for before in self._before], last)
        scale = np.divide(probability, whole, out=np.zeros_like(u), where=whole > 0)
        return tuple(each * scale for each in last)


Kind = tuple[Law, Law]


def _density(law: Law, x: Floats) -> Floats:
    if isinstance(law, Point):
        return np.zeros_like(x)
    if isinstance(law, OfDelay):
        return np.asarray(law.delay.density((x - law.shift) / law.scale) / law.scale)
    return (law if isinstance(law, Interpolated) else Interpolated(law)).density(x)


def _late(share: Law, upload: Law, u: Floats, before: Floats, z: Floats) -> Floats:
    """P(U > u, U − u + share ≤ z) = ∫₀^P(share ≤ z) [P(U ≤ u + z − Q_share(v)) − P(U ≤ u)] dv, (len(z), len(u))."""
    width = share.cdf(z)[:, None]
    ends = u[:, None] + (z[:, None] - share.quantile(width * _U))[:, None, :]
    return np.asarray((np.maximum(upload.cdf(ends) - before[:, None], 0.0) @ _W) * width)


_U, _W = double_exponential(0.115)
_TOGETHER = 16
_GAUSS, _GAUSS_WEIGHTS = gauss(7)
_REACH = 2.0 ** np.arange(-4, 7)
_TAIL = 1e-10
