"""Laws of protocols whose clients all start afresh with each server step: of the first t of their cycles."""

from __future__ import annotations

from functools import partial

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import ClosedForm, Finding, Range
from vflsim.analysis.formulas import ratio_formulas, round_formulas
from vflsim.analysis.lockstep import RoundLaws, Trip, law_of_rounds
from vflsim.analysis.rounds import LATER, ROUND, ages, exponential_rate, groups_of, used_probabilities
from vflsim.analysis.stages import Turn, Unanalysable
from vflsim.timing.delays.sums import total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum, order_statistic

LONGEST_RECURSION = 500_000
"""Limit of clients times t for the Poisson–binomial recursion."""


def check_recursion(clients: int, t: int) -> None:
    """Raise Unanalysable if the Poisson–binomial recursion takes too long."""
    if 1 < t < clients and t * clients > LONGEST_RECURSION:
        raise Unanalysable(f"the recursion over {clients:,} clients with t = {t:,} would take too long")


def ignoring(laws: RoundLaws, fastest: int | None, deadline: float | None) -> tuple[Finding, ...]:
    """Return the laws of a synchronous protocol that never drops clients. Raises Unanalysable if it may."""
    trips = [part for turn in laws.turns for part in laws.course(turn) if isinstance(part, Trip)]
    longest = max(maximum(laws.slowed(trip)).support[1] for trip in trips)
    if (fastest or len(laws.clients)) < len(laws.clients) or (deadline is not None and deadline < longest):
        raise Unanalysable(
            "a dropped client finishes its upload before it joins again: a round depends on the ones before"
        )
    return (law_of_rounds(laws),)


def starting_afresh(cycles: Cycles, t: int) -> tuple[Finding, ...]:
    """Return the laws of t-synchronous with ``cancel``: the t-th of the clients' cycles, and a server step."""
    many = len(cycles.clients)
    check_recursion(many, t)
    for turn in cycles.turns:
        least = order_statistic(cycles.cycles(turn, used=False), t).support[0] + cycles.service(turn.now).support[0]
        if any(cycles.waits(cycles.trip(turn))) and cycles.broadcast(turn) > least:
            raise Unanalysable("gradients of a step may still wait for the link when those of the next one are sent")
        for way, step in cycles.returns(turn):
            _check_return(way, step, least)
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
        findings += ages(cycles.clients, used_probabilities(laws, t), t)
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


def _round(cycles: Cycles, t: int, bounds: tuple[Law, Law]) -> ClosedForm:
    turn = cycles.turns[0]
    more = []
    if bounds[0] != bounds[1]:
        longest = max(max(cycles.waits(cycles.trip(each))) for each in cycles.turns)
        if longest:
            most = f"at most {longest:.3g} s a round and client"
            more.append(f"bounds: messages wait for each other on the links, {most}")
        if cycles.cycles(turn) != cycles.cycles(turn, used=False):
            more.append("bounds: only clients used in the round before get a gradient and take a step")
    groups, names = groups_of(cycles, cycles.cycles(turn, used=False))
    conditions, slower = (LATER, "draws are independent", *cycles.mixed, *more), bounds[1]
    formulas = lambda: round_formulas(groups, names, t, cycles.service(turn.now))  # noqa: E731
    return ClosedForm(ROUND, "s", conditions, formulas, bounds[0], None if bounds[0] == slower else slower)


def _bounds(cycles: Cycles, t: int) -> tuple[Law, Law]:
    """Return laws of no larger and of no smaller rounds: without waits for links; with waits, and all clients used."""
    many = len(cycles.clients)

    def of(turn: Turn, laws: list[Law]) -> Law:
        return total([order_statistic(laws, t), cycles.service(turn.now)])

    least = cycles.over_turns(lambda turn: of(turn, cycles.cycles(turn, used=t == many)))
    if t == many and cycles.alone:
        return least, least
    return least, cycles.over_turns(lambda turn: of(turn, cycles.slowed(cycles.trip(turn))))
