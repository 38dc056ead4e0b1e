"""What laws of rounds share: names, groups of alike clients, and the ages of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm
from vflsim.analysis.formulas import age_formulas
from vflsim.analysis.stages import Stages
from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import counts, union

ROUND = "round duration"
LATER = "of rounds after the first, which is shorter"
MIXED = "of a round picked at random: the last batch of an epoch is smaller"
AGE = "client age"
_TIED = 1e-6
"""Smallest probability of ties that counts."""
_NEVER = 1e-12
"""Clients that steps use with a smaller probability count as never used."""


def ages(clients: Sequence[int], used: Sequence[float], t: int) -> list[Finding]:
    """Return the laws of client ages if every step uses t clients, each with a probability independent of the past."""
    if math.fsum(used) < t - _TIED:
        why = "clients may arrive at the same instant as the last that a step uses: their order decides which it uses"
        return [NoClosedForm(AGE, why)]
    conditions = ("in the long run, over all server steps", "which clients a step uses is independent of other steps")
    groups: dict[float, list[int]] = {}
    for client, p in zip(clients, used, strict=True):
        groups.setdefault(p, []).append(client)
    return [
        ClosedForm(AGE, "steps", conditions, partial(age_formulas, p), Geometric(p), clients=tuple(members))
        if p > _NEVER
        else NoClosedForm(AGE, f"steps never use {numbered(members)}: the age only grows")
        for p, members in groups.items()
    ]


def groups_of(stages: Stages, laws: Sequence[Law]) -> tuple[list[tuple[Law, int]], list[str]]:
    """Group alike clients: return law and size of each group, and its clients' numbers in words."""
    members: dict[Law, list[int]] = {}
    for client, law in zip(stages.clients, laws, strict=True):
        members.setdefault(law, []).append(client)
    return [(law, len(group)) for law, group in members.items()], [numbered(group) for group in members.values()]


def numbered(clients: Sequence[int]) -> str:
    """Name clients: ``client 3``, ``clients 1–4``, ``5 clients``."""
    if len(clients) == 1:
        return f"client {clients[0]}"
    if clients[-1] - clients[0] == len(clients) - 1:
        return f"clients {clients[0]}–{clients[-1]}"
    return f"clients {', '.join(map(str, clients))}" if len(clients) <= 6 else f"{len(clients)} clients"


# --- ages of embeddings -----------------------------------------------------------------------------------------------


def exponential_rate(law: Law) -> float | None:
    """Give the rate of an exponential time; None for any other law."""
    if isinstance(law, OfDelay) and isinstance(law.delay, Exponential) and law.shift == 0:
        return 1 / (law.scale * law.delay.mean)
    return None


@final
@dataclass(frozen=True)
class Geometric(Law):
    """A number of steps without success: P(A = a) = p (1 − p)^a for a = 0, 1, …."""

    p: float

    @property
    @override
    def support(self) -> tuple[float, float]:
        return 0.0, 0.0 if self.p == 1 else math.inf

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        steps = np.floor(floats(x))
        if self.p == 1:
            return np.where(steps >= 0, 1.0, 0.0)
        return np.where(steps >= 0, -np.expm1((steps + 1) * math.log1p(-self.p)), 0.0)

    @override
    def expectation(self) -> float:
        return (1 - self.p) / self.p

    @override
    def variance(self) -> float:
        return (1 - self.p) / self.p**2

    @override
    def quantile(self, q: ArrayLike) -> Floats:
        levels = floats(q)
        if self.p == 1:
            return np.zeros(levels.shape)
        with np.errstate(divide="ignore"):
            steps = np.ceil(np.log1p(-levels) / math.log1p(-self.p) - 1)
        steps = np.maximum(steps, 0.0)
        return np.asarray(steps + (self.cdf(steps) < levels))


def used_probabilities(laws: Sequence[Law], t: int) -> list[float]:
    """Give for each of independent times the probability that it is among the first t (ties count for none).

    P(m among the t first) = ∫₀¹ P(fewer than t of the others are ≤ Q_m(u)) du, in panels between the kinks. Times that
    differ by rounding alone are ties. All probabilities sum to t, less what ties for the t-th place take away.
    """
    kinks, known = union(laws), dict[Law, float]()
    for m, law in enumerate(laws):
        if law not in known:
            levels = np.concatenate([[0.0, 1.0], law.cdf(kinks), law.cdf(np.nextafter(kinks, -math.inf))])
            ends = np.unique(levels)
            width = np.diff(ends)[:, None]
            u, weights = (ends[:-1, None] + width * _U).ravel(), (width * _W).ravel()
            x = law.quantile(np.minimum(u, 1 - 2.0**-53)) * (1 + ROUNDING)
            others = [other.cdf(x) for j, other in enumerate(laws) if j != m]
            known[law] = min(1.0, float(counts(others, t).sum(axis=0) @ weights))
    return [known[law] for law in laws]


ROUNDING = 1e-12
"""The largest relative difference of times that are sums of the same terms in another order."""


def _double_exponential(step: float) -> tuple[Floats, Floats]:
    """Give nodes and weights on [0, 1] of the tanh–sinh rule, for singularities at the ends (Takahasi & Mori 1974)."""
    t = np.arange(-3.2, 3.2 + step / 2, step)
    nodes = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
    weights = np.cosh(t) * nodes * (1 - nodes)
    return np.minimum(nodes, 1 - 2.0**-53), weights / weights.sum()


_U, _W = _double_exponential(0.09)
