"""The barrier of rounds in which late clients first finish their uploads, computed fast for many clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.affine import OfDelay, knows_quantiles
from vflsim.timing.chebyshev import NARROW
from vflsim.timing.floats import Floats, floats
from vflsim.timing.interpolation import Interpolated
from vflsim.timing.law import Law, Point, union
from vflsim.timing.order import counts, maximum, order_statistic
from vflsim.timing.quadrature import double_exponential, gauss
from vflsim.timing.sums import total

Late = Literal["abandoned", "finished"]


@final
@dataclass(frozen=True)
class LateShares(Law):
    """max_m [(U_m − U₍R₎)⁺ + share_m]: when all clients have shared, counted from the R-th upload of the round before.

    ``clients`` are pairs of share and upload. Given that the R-th upload arrives at u, any client has either arrived
    and has shared by z, with probability P(U_j ≤ u) P(share_j ≤ z), or is late and has finished and shared by z, with
    P(U_j > u, U_j − u + share_j ≤ z). Where uploads have a density, the Poisson–binomial recursion counts R − 1
    arrivals besides the R-th, and the integral goes over the levels of the law of U₍R₎ (client m's part is its density
    times the probability of R − 1 before it). At an atom u of any upload, the R-th arrives at u if fewer than R arrive
    before u, but not fewer than R by u: the difference of two such counts. Clients that arrive at u are not late.
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
    def breaks(self) -> Floats:
        return self._breaks[0]

    @cached_property
    def _breaks(self) -> tuple[Floats, bool]:
        """The breaks, and whether the list is complete (it is cut if very long)."""
        shares = union(share for share, _ in self.clients)
        ends = union(upload for _, upload in self.clients)
        apart = np.unique(np.subtract.outer(np.union1d(ends, self._at), self._at))  # lateness at atoms
        late = np.unique(np.add.outer(shares, apart[apart > 0]))
        late = late[np.append(True, np.diff(late) > _SAME * late[1:])] if len(late) else late
        if len(late) > _MOST_BREAKS:
            return shares, False
        # Except for rounding, jumps lie at these points: put a node on either side of each.
        near = np.concatenate([late * (1 - NARROW / 4), late * (1 + NARROW / 4)])
        return np.union1d(shares, near), True

    @property
    @override
    def accuracy(self) -> float:
        # Where uploads have atoms or ends, the integrand has kinks that depend on u and on z.
        plain = not len(self._at) and all(math.isinf(upload.support[1]) for _, upload in self._kinds)
        return super().accuracy if plain else _WITH_KINKS

    @override
    def variance(self) -> float:
        # This is only a scale for the table, which is built before the moments.
        return max(share.variance() + upload.variance() for share, upload in self.clients)

    @override
    def expectation(self) -> float:
        """Return the mean by a fixed quadrature rule, to about seven digits.

        An adaptive rule needs many more points.
        """
        return self._mean

    @cached_property
    def _mean(self) -> float:
        low, scale = self.support[0], math.sqrt(self.variance())
        if not 0 < scale < math.inf or not self._breaks[1]:
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
        """Return P(all have shared by z), at points (n,)."""
        there, late, last = [], [], []
        for (share, upload), before, weight in zip(self._kinds, self._before, self._weights, strict=True):
            shared = share.cdf(z)[:, None]
            there.append(before * shared)
            late.append(_late(share, upload, self._when[0], z))
            last.append(weight * shared)
        found = self._one_last(there, late, last).sum(axis=1) + self._shared_at(z)
        return np.asarray(found.clip(0.0, 1.0))

    def _shared_at(self, z: Floats) -> Floats:
        """Return P(all have shared by z, and the R-th upload has arrived at an atom)."""
        at = self._at
        if not len(at):
            return np.zeros(z.shape)
        before, by = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
        for share, upload in self._kinds:
            shared, later = share.cdf(z)[:, None], _late(share, upload, at, z)
            here = upload.cdf(at)
            sooner = here - _mass(upload, at)
            before.append((sooner * shared, (here - sooner) * shared + later))
            by.append((here * shared, later))
        return np.asarray((self._fewer(before) - self._fewer(by)).sum(axis=1))

    def _fewer(self, kinds: Sequence[tuple[Floats, Floats]]) -> Floats:
        """Return the probability that fewer than R clients are in the first of two cases, all others in the second."""
        each = [kinds[kind] for kind in self._members]
        return np.asarray(counts([one for one, _ in each], self.responders, [other for _, other in each]).sum(axis=0))

    def _one_last(self, there: Sequence[Floats], late: Sequence[Floats], last: Sequence[Floats]) -> Floats:
        """Sum over clients ``last``, times the probability that R − 1 others are ``there`` and the rest ``late``.

        The Poisson–binomial recursion has two states: before and after the last client in time.
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
        """Nodes between atoms for the arrival of the R-th upload, and their probabilities, smooth in the levels."""
        uploads = [upload for _, upload in self.clients]
        law = order_statistic(uploads, self.responders)
        kinks = union(uploads)
        up_to, before = law.cdf(kinks), law.cdf(np.nextafter(kinks, -np.inf))
        ends = np.unique(np.concatenate([[0.0, 1.0], up_to, before]))
        middle = (ends[:-1] + ends[1:]) / 2
        jumps = ((before[:, None] < middle) & (middle < up_to[:, None]) & (up_to - before > _JUMP)[:, None]).any(axis=0)
        low, width = ends[:-1][~jumps, None], np.diff(ends)[~jumps, None]
        levels = (low + width * _U).ravel()
        return law.quantile(np.minimum(levels, 1 - 2.0**-53)), (width * _W).ravel()

    @cached_property
    def _at(self) -> Floats:
        """The atoms of all uploads."""
        return np.unique(np.concatenate([upload.atoms().values for _, upload in self._kinds]))

    @cached_property
    def _weights(self) -> tuple[Floats, ...]:
        """The weight of each kind as the R-th at a node, without the probability of R − 1 before it; in total 1."""
        u, probability = self._when
        last = [upload.density(u) for _, upload in self._kinds]
        whole = self._one_last(self._before, [1.0 - before for before in self._before], last)
        scale = np.divide(probability, whole, out=np.zeros_like(u), where=whole > 0)
        return tuple(each * scale for each in last)


Kind = tuple[Law, Law]


def _late(share: Law, upload: Law, u: Floats, z: Floats) -> Floats:
    """Return P(U > u, U − u + share ≤ z), (len(z), len(u)).

    The atoms of U contribute their masses times P(share ≤ z − (atom − u)). The rest of U, with its part F(x) of
    P(U ≤ x), contributes ∫₀^P(share ≤ z) [F(u + z − Q_share(v)) − F(u)] dv, in panels between the share's own atoms.
    """
    found, atoms = np.zeros((len(z), len(u))), upload.atoms()
    for place, mass in zip(atoms.values, atoms.masses, strict=True):
        after = u < place
        found[:, after] += mass * share.cdf(z[:, None] - (place - u[after]))
    if not len(u) or atoms.mass > 1 - 1e-12:
        return found

    def without_atoms(x: Floats) -> Floats:
        return upload.cdf(x) - atoms.cdf(x) if len(atoms.values) else upload.cdf(x)

    before, both = without_atoms(u), u + z[:, None]
    for weight, part in _components(share):
        if isinstance(part, Point):
            later = np.maximum(without_atoms(both - part.value) - before, 0.0)
            found += weight * np.where((z >= part.value)[:, None], later, 0.0)
            continue
        for low, high in pairwise(_panels(part, [x for x in upload.breaks if u.min() < x < math.inf], z, both)):
            width = high - low
            if (width > 0).any():
                levels = np.minimum(low[..., None] + width[..., None] * _U, high[..., None])
                later = both[..., None] - part.quantile(levels)
                found += weight * width * (np.maximum(without_atoms(later) - before[:, None], 0.0) @ _W)
    return found


def _panels(share: Law, kinks: Sequence[float], z: Floats, both: Floats) -> Sequence[Floats]:
    """Return levels v of a share, up to P(share ≤ z), between which Q_share(v) and F(u + z − Q_share(v)) are smooth.

    They ascend, of shape (len(z), 1), or (len(z), len(u)) if F has kinks later than u. Laws that search their quantiles
    skip the kinks: the search costs more than the small error matters.
    """
    places, top = share.atoms().values, share.cdf(z)[:, None]
    levels = [np.full_like(top, level) for level in (0.0, 1.0)]
    for place in places:
        levels += [np.full_like(top, share.cdf(x)) for x in (np.nextafter(place, -np.inf), place)]
    if kinks and knows_quantiles(share):
        levels += [share.cdf(both - kink) for kink in kinks]
    stacked = np.sort(np.stack(np.broadcast_arrays(*levels)), axis=0)
    return [*np.minimum(stacked, top)]


def _components(law: Law) -> Iterator[tuple[float, Law]]:
    """Yield the parts of a mixture with their probabilities (each may know its quantiles); else the law itself."""
    pieces = law.delay.pieces() if isinstance(law, OfDelay) else None
    if not isinstance(law, OfDelay) or pieces is None or any(len(parts) > 1 for _, parts in pieces):
        yield 1.0, law
        return
    for weight, (delay,) in pieces:
        shortest, longest = delay.support
        part = OfDelay(delay, law.shift, law.scale)
        if shortest == longest:
            yield weight, Point(part.support[0])
        else:
            yield from ((weight * share, each) for share, each in _components(part))


def _mass(law: Law, x: Floats) -> Floats:
    """Return P(X = x)."""
    atoms = law.atoms()
    found = np.zeros(x.shape)
    found[np.searchsorted(x, atoms.values)] = atoms.masses
    return found


_U, _W = double_exponential(0.115)
_TOGETHER = 16
_GAUSS, _GAUSS_WEIGHTS = gauss(7)
_REACH = 2.0 ** np.arange(-4, 7)
_TAIL = 1e-10
_JUMP = 1e-12
_SAME = 1e-12
_WITH_KINKS = 1e-6
_MOST_BREAKS = 64


def coded_round(shares: Sequence[Law], uploads: Sequence[Law], responders: int, late: Late = "abandoned") -> Law:
    """Return the law of a round's duration, from one decoding to the next.

    Client m first shares its model (``shares[m]``); when all have, each computes and uploads (``uploads[m]``); the
    server decodes after the first ``responders`` uploads, and the next round begins.

    ``abandoned``: the broadcast ends late uploads; a round is the longest share and the R-th smallest upload, and
    rounds are independent. ``finished``: a late client first finishes its upload, and then shares its next model; a
    round is max_m [(U_m − U₍R₎)⁺ + share_m], with U the uploads of the round before, and the R-th smallest upload.
    Neighbouring rounds are then dependent, but all except the first have this law.
    Raises ValueError for lists of different lengths, or more responders than clients.
    """
    if len(shares) != len(uploads):
        raise ValueError(f"{len(shares)} shares and {len(uploads)} uploads; allowed: one of each per client")
    fastest = Interpolated(order_statistic(uploads, responders))
    if late == "abandoned" or responders == len(uploads):
        return total([Interpolated(maximum(shares)), fastest])
    return total([Interpolated(LateShares(tuple(zip(shares, uploads, strict=True)), responders)), fastest])
