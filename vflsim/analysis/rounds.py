"""Laws of protocols whose clients all restart with each server step: rounds are independent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.analysis.cycles import Cycles, Stages, Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm, Range
from vflsim.analysis.formulas import age_formulas, ratio_formulas, round_formulas
from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import counts, maximum, order_statistic, union

ROUND = "round duration"
LATER = "of rounds after the first, which is shorter"
MIXED = "of a round picked at random: the last batch of an epoch is smaller"
AGE = "client age"
LONGEST_RECURSION = 500_000
"""Limit of clients times t for the Poisson–binomial recursion."""
_TIED = 1e-6
"""Smallest probability of ties that counts."""
_NEVER = 1e-12
"""Clients that steps use with a smaller probability count as never used."""


def synchronous(cycles: Cycles) -> tuple[Finding, ...]:
    """Return the law of a round: the longest of the clients' cycles, and a server step.

    All clients restart at the same server step with fresh draws, so rounds are independent.
    """
    return (_round(cycles, len(cycles.clients), _bounds(cycles, len(cycles.clients))),)


def ignoring(cycles: Cycles, fastest: int | None, deadline: float | None) -> tuple[Finding, ...]:
    """Return the laws of a synchronous protocol that never drops clients. Raises Unanalysable if it may."""
    longest = max(maximum(slowed(cycles, turn)).support[1] for turn in cycles.turns)
    if (fastest or len(cycles.clients)) < len(cycles.clients) or (deadline is not None and deadline < longest):
        raise Unanalysable(
            "a dropped client finishes its upload before it joins again: a round depends on the ones before"
        )
    return synchronous(cycles)


def starting_afresh(cycles: Cycles, t: int) -> tuple[Finding, ...]:
    """Return the laws of t-synchronous with ``cancel``: the t-th of the clients' cycles, and a server step."""
    many = len(cycles.clients)
    check_recursion(many, t)
    for turn in cycles.turns:
        least = order_statistic(cycles.cycles(turn, used=False), t).support[0] + cycles.service(turn.now).support[0]
        if any(cycles.longest_waits(turn)) and cycles.broadcast(turn) > least:
            raise Unanalysable("gradients of a step may still wait for the link when those of the next one are sent")
        for client in cycles.clients:
            _check_return(*cycles.return_of(client, turn), least)
    bounds, everybody = _bounds(cycles, t), _bounds(cycles, many)
    findings: list[Finding] = [_round(cycles, t, bounds)]
    laws = cycles.cycles(cycles.turns[0])
    if everybody[0].expectation() > 0:
        ratio = Range(
            bounds[0].expectation() / everybody[1].expectation(), bounds[1].expectation() / everybody[0].expectation()
        )
        formulas = partial(ratio_formulas, laws, t)
        findings.append(ClosedForm("share of a synchronous round", "", (LATER,), formulas, given=ratio))
    if bounds[0] == bounds[1] and len(cycles.turns) == 1 and len(set(laws)) * many * t < 10**5:
        findings += ages(cycles, used_probabilities(laws, t), t)
    return tuple(findings)


def _check_return(way: Law, step: Law, least: float) -> None:
    """Raise Unanalysable if a client may begin a round late, since it still processes an earlier gradient.

    It does not if the gradient arrives and the step ends within the ``least`` round. A running step of constant or
    memoryless duration has no longer to go than a new one, and constant ways keep the order of messages: bounds hold.
    """
    if way.support[1] + step.support[1] <= least:
        return
    if way.support[0] < way.support[1] or not (isinstance(step, Point) or exponential_rate(step) is not None):
        raise Unanalysable(
            "a gradient on its way, or a client step, may outlast a round: who begins late depends on the rounds before"
        )


def ages(cycles: Cycles, used: Sequence[float], t: int) -> list[Finding]:
    """Return the laws of client ages if every step uses t clients, each with a probability independent of the past."""
    if math.fsum(used) < t - _TIED:
        why = "clients may arrive at the same instant as the last that a step uses: their order decides which it uses"
        return [NoClosedForm(AGE, why)]
    conditions = ("in the long run, over all server steps", "which clients a step uses is independent of other steps")
    groups: dict[float, list[int]] = {}
    for client, p in zip(cycles.clients, used, strict=True):
        groups.setdefault(p, []).append(client)
    return [
        ClosedForm(AGE, "steps", conditions, partial(age_formulas, p), Geometric(p), clients=tuple(members))
        if p > _NEVER
        else NoClosedForm(AGE, f"steps never use {numbered(members)}: the age only grows")
        for p, members in groups.items()
    ]


def conditions_of(cycles: Cycles, first: Iterable[str], *more: str) -> tuple[str, ...]:
    """List the conditions of a law of rounds."""
    several = (MIXED,) if cycles.differing else ()
    return (*first, *several, *more)


def check_recursion(clients: int, t: int) -> None:
    """Raise Unanalysable if the Poisson–binomial recursion takes too long."""
    if 1 < t < clients and t * clients > LONGEST_RECURSION:
        raise Unanalysable(f"the recursion over {clients:,} clients with t = {t:,} would take too long")


def groups_of(cycles: Stages, laws: Sequence[Law]) -> tuple[list[tuple[Law, int]], list[str]]:
    """Group alike clients: return law and size of each group, and its clients' numbers in words."""
    members: dict[Law, list[int]] = {}
    for client, law in zip(cycles.clients, laws, strict=True):
        members.setdefault(law, []).append(client)
    return [(law, len(group)) for law, group in members.items()], [numbered(group) for group in members.values()]


def numbered(clients: Sequence[int]) -> str:
    """Name clients: ``client 3``, ``clients 1–4``, ``5 clients``."""
    if len(clients) == 1:
        return f"client {clients[0]}"
    if clients[-1] - clients[0] == len(clients) - 1:
        return f"clients {clients[0]}–{clients[-1]}"
    return f"clients {', '.join(map(str, clients))}" if len(clients) <= 6 else f"{len(clients)} clients"


def _round(cycles: Cycles, t: int, bounds: tuple[Law, Law]) -> ClosedForm:
    turn, many = cycles.turns[0], len(cycles.clients)
    more = []
    if bounds[0] != bounds[1]:
        longest = max(max(cycles.longest_waits(each)) for each in cycles.turns)
        if longest:
            most = f"at most {longest:.3g} s a round and client"
            more.append(f"bounds: messages wait for each other on the links, {most}")
        if t < many and cycles.cycles(turn) != cycles.cycles(turn, used=False):
            more.append("bounds: only clients used in the round before get a gradient and take a step")
    groups, names = groups_of(cycles, cycles.cycles(turn, used=t == many))
    conditions, slower = conditions_of(cycles, (LATER, "draws are independent"), *more), bounds[1]
    formulas = lambda: round_formulas(groups, names, t, cycles.service(turn.now))  # noqa: E731
    return ClosedForm(ROUND, "s", conditions, formulas, bounds[0], None if bounds[0] == slower else slower)


def _bounds(cycles: Cycles, t: int) -> tuple[Law, Law]:
    """Return laws of no larger and of no smaller rounds: without waits for links; with waits, and all clients used."""
    many = len(cycles.clients)

    def of(turn: Turn, laws: list[Law]) -> Law:
        return total([order_statistic(laws, t), cycles.service(turn.now)])

    least = cycles.over_turns(lambda turn: of(turn, cycles.cycles(turn, used=t == many)))
    if t == many and not any(any(cycles.longest_waits(turn)) for turn in cycles.turns):
        return least, least
    return least, cycles.over_turns(lambda turn: of(turn, slowed(cycles, turn)))


def slowed(cycles: Cycles, turn: Turn, used: bool = True) -> list[Law]:
    """Return the clients' cycles with the longest waits for links."""
    waits = cycles.longest_waits(turn)
    return [shifted(law, wait) for law, wait in zip(cycles.cycles(turn, used), waits, strict=True)]


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
