"""Laws of protocols whose clients all restart with each server step: rounds are independent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vflsim.analysis.cycles import Cycles, Stages, Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm, Range
from vflsim.analysis.formulas import age_formulas, ratio_formulas, round_formulas
from vflsim.analysis.renewal import Geometric, exponential_rate, used_probabilities
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum, order_statistic

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
    if everybody[0].expectation() > 0:
        ratio = Range(
            bounds[0].expectation() / everybody[1].expectation(), bounds[1].expectation() / everybody[0].expectation()
        )
        laws = cycles.cycles(cycles.turns[0])
        findings.append(
            ClosedForm(
                "share of a synchronous round", "", (LATER,), lambda: ratio_formulas(laws, t), given=ratio
            )
        )  # fmt: skip
    if (
        bounds[0] == bounds[1]
        and len(cycles.turns) == 1
        and len(set(cycles.cycles(cycles.turns[0]))) * many * t < 10**5
    ):
        findings += ages(cycles, used_probabilities(cycles.cycles(cycles.turns[0]), t), t)
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
        ClosedForm(AGE, "steps", conditions, lambda p=p: age_formulas(p), Geometric(p), clients=tuple(members))  # type: ignore[misc]
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
            more.append(
                f"bounds: messages wait for each other on the links, at most {longest:.3g} s a round and client"
            )
        if t < many and cycles.cycles(turn) != cycles.cycles(turn, used=False):
            more.append("bounds: only clients used in the round before get a gradient and take a step")
    groups, names = groups_of(cycles, cycles.cycles(turn, used=t == many))
    return ClosedForm(
        ROUND,
        "s",
        conditions_of(cycles, (LATER, "draws are independent"), *more),
        lambda: round_formulas(groups, names, t, cycles.service(turn.now)),
        bounds[0],
        None if bounds[0] == bounds[1] else bounds[1],
    )


def _bounds(cycles: Cycles, t: int) -> tuple[Law, Law]:
    """Return laws of no larger and of no smaller rounds: without waits for links; with waits, and all clients used."""
    many = len(cycles.clients)

    def fast(turn: Turn) -> Law:
        return of(turn, cycles.cycles(turn, used=t == many))

    def slow(turn: Turn) -> Law:
        return of(turn, slowed(cycles, turn))

    def of(turn: Turn, laws: list[Law]) -> Law:
        return total([order_statistic(laws, t), cycles.service(turn.now)])

    least = cycles.over_turns(fast)
    if t == many and not any(any(cycles.longest_waits(turn)) for turn in cycles.turns):
        return least, least
    return least, cycles.over_turns(slow)


def slowed(cycles: Cycles, turn: Turn, used: bool = True) -> list[Law]:
    """Return the clients' cycles with the longest waits for links."""
    waits = cycles.longest_waits(turn)
    return [shifted(law, wait) for law, wait in zip(cycles.cycles(turn, used), waits, strict=True)]
