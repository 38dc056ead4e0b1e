"""Protocols whose clients proceed at their own pace: asynchronous (t = 1), and t-synchronous without ``cancel``."""

from __future__ import annotations

import math
from collections import Counter

from vflsim.analysis.ages import used_probabilities
from vflsim.analysis.cycles import Cycles, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, Range
from vflsim.analysis.formulas import (
    bound_formulas,
    chain_formulas,
    pooled_formulas,
    rate_formulas,
    round_formulas,
)
from vflsim.analysis.memoryless import working_on
from vflsim.analysis.renewal import exponential_rate, pooled_interval, repairman_rates
from vflsim.analysis.rounds import (
    ROUND,
    ages,
    check_recursion,
    conditions_of,
    groups_of,
    numbered,
    synchronous,
)
from vflsim.timing.law import Law, Point
from vflsim.timing.order import SlowestSubset, order_statistic
from vflsim.timing.sums import shifted

LONG_RUN = "in the long run, over all server steps"
ALONE = "no message waits for a link"
MEMORYLESS = "cycles are exponential: a late client has as long to go as one that begins"


def own_pace(cycles: Cycles, t: int) -> tuple[Finding, ...]:
    """Return the laws of steps on the first t arrivals; late arrivals count for a later step.

    Exact if clients are independent (the server takes no time and t = 1) or memoryless; else bounds of the mean.
    """
    if len(cycles.clients) == 1:
        return synchronous(cycles)
    check_recursion(len(cycles.clients), t)
    turn = cycles.turns[0]
    laws, services = (
        cycles.cycles(turn),
        {cycles.service(rows) for each in cycles.turns for rows in (each.now, t * each.now)},
    )
    alone = not any(any(cycles.longest_waits(each)) for each in cycles.turns)
    settled = alone and len(services) == 1 and all(cycles.cycles(each) == laws for each in cycles.turns)
    found: list[Finding] = []
    if settled:
        found = _exact(cycles, laws, services.pop(), t)
    elif alone and t == 1 and services == {Point(0.0)}:
        found = _rates(cycles, [_mean_cycle(cycles, client) for client in cycles.clients])
    return tuple(found or [_bounds(cycles, t)])


def _exact(cycles: Cycles, laws: list[Law], service: Law, t: int) -> list[Finding]:
    rates = [exponential_rate(law) for law in laws]
    known = [rate for rate in rates if rate is not None]
    memoryless, at_once = len(known) == len(laws), service == Point(0.0)
    if memoryless and at_once:
        law = order_statistic(laws, t)
        groups, names = groups_of(cycles, laws)
        exact = ClosedForm(
            ROUND, "s", (LONG_RUN, ALONE, MEMORYLESS),
            lambda: round_formulas(groups, names, t, service), law,
        )  # fmt: skip
        few = len(set(laws)) * len(laws) * t < 10**5
        return [exact, _per_second(exact), *(ages(cycles, used_probabilities(laws, t), t) if few else [])]
    if memoryless and isinstance(service, Point) and len(set(laws)) == 1:
        clients, rate = len(laws), known[0]
        chain = ClosedForm(
            ROUND, "s", (LONG_RUN, ALONE, "alike exponential cycles, a constant server step: a Markov chain"),
            lambda: chain_formulas(clients, t, rate, service.value),
            working_on(laws[0], rate, clients, t, service.value),
        )  # fmt: skip
        return [chain, _per_second(chain)]
    if t == 1 and at_once:
        pooled = pooled_interval(laws)
        if pooled is None:
            return _rates(cycles, [law.expectation() for law in laws])
        groups, names = groups_of(cycles, laws)
        interval = ClosedForm(
            ROUND, "s", (LONG_RUN, ALONE, "clients cycle independently of each other"),
            lambda: pooled_formulas(groups, names), pooled,
        )  # fmt: skip
        return [interval, *_rates(cycles, [law.expectation() for law in laws])[1:]]
    if t == 1 and exponential_rate(service) is not None:
        steps = repairman_rates([law.expectation() for law in laws], service.expectation())
        return _steps(cycles, steps, (LONG_RUN, ALONE, "exponential server steps in order of arrival (product form)"))
    return []


def _rates(cycles: Cycles, means: list[float]) -> list[Finding]:
    """Return the laws of clients that never wait for one another: each steps once per cycle."""
    if min(means) <= 0:
        return []
    return _steps(cycles, [1 / mean for mean in means], (LONG_RUN, ALONE, "clients cycle independently of each other"))


def _steps(cycles: Cycles, rates: list[float], conditions: tuple[str, ...]) -> list[Finding]:
    """Return the mean round, steps per second, and steps from one of a client to its next (Little's law)."""
    whole, every = math.fsum(rates), conditions_of(cycles, conditions)
    groups: dict[float, list[int]] = {}
    for client, rate in zip(cycles.clients, rates, strict=True):
        groups.setdefault(rate, []).append(client)
    formulas = lambda: rate_formulas([(rate, numbered(group)) for rate, group in groups.items()])  # noqa: E731
    mean = ClosedForm(ROUND, "s", every, formulas, given=Range.of(1 / whole))
    found: list[Finding] = [mean, _per_second(mean)]
    return found + [
        ClosedForm(
            "steps from one of its own to the next",
            "steps",
            every,
            formulas,
            given=Range.of(whole / rate),
            clients=tuple(group),
        )
        for rate, group in groups.items()
    ]


def _per_second(form: ClosedForm) -> ClosedForm:
    mean = form.mean
    return ClosedForm(
        "server steps per second", "1/s", form.conditions, form.formulas, given=Range(1 / mean.high, 1 / mean.low)
    )


def _mean_cycle(cycles: Cycles, client: int) -> float:
    return math.fsum(turn.share * cycles.cycle(client, turn).expectation() for turn in cycles.turns)


def _bounds(cycles: Cycles, t: int) -> ClosedForm:
    """Return bounds of the mean round.

    From below: no client returns before a cycle and a server step, and a step takes t clients. From above: any t
    clients that the previous step used return after the longest of their cycles; and for t = 1 with a constant step, no
    client waits for more than one step of each of the others.
    """
    many = len(cycles.clients)
    step = min(cycles.service(turn.now).expectation() for turn in cycles.turns)
    longest_step = max((cycles.service(t * turn.now) for turn in cycles.turns), key=Law.expectation)
    waits = [max(each) for each in zip(*map(cycles.longest_waits, cycles.turns), strict=True)]
    means = [_mean_cycle(cycles, client) for client in cycles.clients]
    if min(means) + step <= 0:
        raise Unanalysable("a client takes no time at all: it steps without end at the same instant")
    low = max(t / math.fsum(1 / (mean + step) for mean in means), step)
    slowed = [shifted(law, wait) for turn in cycles.turns for law, wait in zip(cycles.cycles(turn), waits, strict=True)]
    high = SlowestSubset(tuple(Counter(slowed).items()), t).expectation() + longest_step.expectation()
    if t == 1 and math.isfinite(longest_step.support[1]):
        others = (many - 1) * longest_step.support[1]
        high = min(
            high,
            1
            / math.fsum(
                1 / (mean + wait + others + longest_step.expectation()) for mean, wait in zip(means, waits, strict=True)
            ),
        )
    why = (
        "bounds of the mean: a step waits for the server, for links, or for clients that are late from steps before, "
        "of which no law is known"
    )
    return ClosedForm(
        ROUND, "s", conditions_of(cycles, (LONG_RUN,), why), lambda: bound_formulas(many, t), given=Range(low, high)
    )
