"""Rounds of coded protocols: a barrier that all must pass, then the R-th upload (FedVS Sec. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.analysis.interpolation import Interpolated
from vflsim.timing.analysis.law import Law, union
from vflsim.timing.analysis.order import counts, maximum, order_statistic
from vflsim.timing.analysis.quadrature import double_exponential
from vflsim.timing.analysis.sums import total
from vflsim.timing.base import Floats, floats

Late = Literal["abandoned", "finished"]


def coded_round(shares: Sequence[Law], uploads: Sequence[Law], responders: int, late: Late = "abandoned") -> Law:
    """The law of a round's duration, from one decoding to the next.

    Client m first shares its model (``shares[m]``); when all have, each computes and uploads (``uploads[m]``); the
    server decodes when the first ``responders`` uploads are there, and the next round begins.

    ``abandoned``: the broadcast ends late uploads; a round is the longest share and the R-th smallest upload, and
    rounds are independent. ``finished``: a late client first finishes its upload, and then shares its next model; a
    round is max_m [(U_m − U₍R₎)⁺ + share_m], with U the uploads of the round before, and the R-th smallest upload.
    Neighbouring rounds are then dependent, but all have this law, the first one excepted.
    Raises ValueError for lists of different lengths, or more responders than clients.
    """
    if len(shares) != len(uploads):
        raise ValueError(f"{len(shares)} shares and {len(uploads)} uploads; allowed: one of each per client")
    fastest = order_statistic(uploads, responders)
    if late == "abandoned" or responders == len(uploads):
        return total([maximum(shares), fastest])
    barrier = LateBarrier(tuple(zip(shares, uploads, strict=True)), responders)
    return total([Interpolated(barrier), Interpolated(fastest)])


@final
@dataclass(frozen=True)
class LateBarrier(Law):
    """max_m [(U_m − U₍R₎)⁺ + share_m]: when all have shared, counted from the R-th upload of the round before.

    Given that client m's upload is the R-th, at u, any other one j is either there already and has shared by z, with
    probability P(U_j ≤ u) P(share_j ≤ z), or is late and has finished and shared by z, with
    P(U_j > u, U_j − u + share_j ≤ z); the Poisson–binomial recursion counts R − 1 of the first kind.
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
    def cdf(self, x: ArrayLike) -> Floats:
        points = floats(x)
        return np.array([self._at(float(z)) for z in points.ravel()]).reshape(points.shape)

    def _at(self, z: float) -> float:
        """P(all have shared by z): over who was the R-th, and when."""
        there, late = {}, {}
        for share, upload in self._kinds:
            before = upload.cdf(self._when)
            there[share, upload] = before * share.cdf(z)
            late[share, upload] = _late(share, upload, self._when, before, z)
        value = 0.0
        for (share, upload), u in self._kinds.items():
            others = list(self.clients)
            others.remove((share, upload))
            among = counts([there[each][u] for each in others], self.responders, [late[each][u] for each in others])
            weight = float(among[self.responders - 1] @ _W) * float(share.cdf(z))
            value += self.clients.count((share, upload)) * weight
        return value

    @cached_property
    def _kinds(self) -> dict[tuple[Law, Law], slice]:
        """The kinds of clients, and where in ``_when`` the times at which one of them may upload are."""
        kinds = dict.fromkeys(self.clients)
        return {kind: slice(place * len(_U), (place + 1) * len(_U)) for place, kind in enumerate(kinds)}

    @cached_property
    def _when(self) -> Floats:
        return np.concatenate([upload.quantile(_U) for _, upload in self._kinds])


def _late(share: Law, upload: Law, u: Floats, before: Floats, z: float) -> Floats:
    """P(U > u, U − u + share ≤ z) = ∫₀^P(share ≤ z) [P(U ≤ u + z − Q_share(v)) − P(U ≤ u)] dv."""
    width = float(share.cdf(z))
    if width == 0.0:
        return np.zeros_like(u)
    ends = u[:, None] + z - share.quantile(width * _U)
    return np.asarray((np.maximum(upload.cdf(ends) - before[:, None], 0.0) @ _W) * width)


_U, _W = double_exponential(0.115)
