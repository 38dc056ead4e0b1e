"""Protocols whose clients proceed at their own pace: asynchronous (t = 1), and t-synchronous without ``cancel``."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial

from vflsim.analysis.ages import used_probabilities
from vflsim.analysis.cycles import Cycles, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, Formulas, Range
from vflsim.analysis.formulas import (
    bound_formulas,
    chain_formulas,
    pooled_formulas,
    program_formulas,
    rate_bound_formulas,
    rate_formulas,
    round_formulas,
    stage_formulas,
)
from vflsim.analysis.memoryless import working_on
from vflsim.analysis.pace import Pace
from vflsim.analysis.product_form import repairman_rates
from vflsim.analysis.renewal import exponential_rate, has_settling_phase, pooled_interval
from vflsim.analysis.rounds import (
    ROUND,
    ages,
    check_recursion,
    conditions_of,
    groups_of,
    numbered,
    synchronous,
)
from vflsim.analysis.several_arrivals import longest_round, shortest_round
from vflsim.analysis.shared_bounds import shared_round
from vflsim.analysis.single_arrivals import busiest, rates
from vflsim.analysis.stage_bounds import stage_round
from vflsim.timing.law import Law, Point
from vflsim.timing.order import SlowestSubset, order_statistic
from vflsim.timing.sums import shifted

LONG_RUN = "in the long run, over all server steps"
ALONE = "no message waits for a link"
RETURN = "steps from one of its own to the next"
WAITS = (
    "bounds of the mean: a step waits for the server, for links, or for clients that are late from steps before, of "
    "which no law is known"
)
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
    elif t == 1 and len(services) == 1:
        found = _product_form(Pace(cycles, 1), services.pop())
    return tuple(found or _bounds(cycles, t))


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
    return _product_form(Pace(cycles, 1), service) if t == 1 else []


def _product_form(pace: Pace, service: Law) -> list[Finding]:
    """Return the exact rates of a network of product form: exponential steps or none, and links without queues."""
    at_once = service == Point(0.0)
    if not (at_once or exponential_rate(service) is not None) or not (pace.alone or pace.shared):
        return []
    shared = pace.shared or ()
    if at_once and not all(has_settling_phase(pace.cycles.cycle(client, pace.full)) for client in pace.cycles.clients):
        return []  # constant cycles keep their phases for ever: nothing settles
    means = [max(0.0, mean - math.fsum(shared)) for mean in pace.means]
    why = ["exponential server steps in order of arrival"] if not at_once else []
    why += ["messages divide the server's links equally"] if shared else [ALONE]
    steps = repairman_rates(means, service.expectation(), shared)
    return _steps(pace.cycles, steps, (LONG_RUN, f"product form: {', '.join(why)}"))


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
            RETURN,
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


def _bounds(cycles: Cycles, t: int) -> list[Finding]:
    """Return bounds of the mean round and of steps per second; for t = 1 also of the steps between two of a client.

    Of all laws: no client returns before a cycle and a server step; and any t clients that the previous step used
    return after the longest of their cycles. ``single_arrivals``, ``several_arrivals``, ``stage_bounds`` and
    ``shared_bounds`` have closer bounds.
    """
    pace = Pace(cycles, t)
    if min(pace.means) + pace.mean_step[0] <= 0:
        raise Unanalysable("a client takes no time at all: it steps without end at the same instant")
    most = [1 / (mean + pace.mean_step[0]) for mean in pace.means]
    low = max(t / math.fsum(most), pace.mean_step[0], t * pace.capacity)
    slowed = [
        shifted(law, wait) for turn in cycles.turns for law, wait in zip(cycles.cycles(turn), pace.waits, strict=True)
    ]
    high = SlowestSubset(tuple(Counter(slowed).items()), t).expectation() + pace.mean_step[1]
    conditions = conditions_of(cycles, (LONG_RUN,), WAITS)
    every = rates(pace) if t == 1 else None
    formulas: Formulas
    if every is not None:
        formulas = partial(rate_bound_formulas, busiest(pace))
        high = min(high, 1 / math.fsum(every[0])) if any(every[0]) else high
    else:
        late, staged = longest_round(pace), stage_round(pace)
        formulas = partial(bound_formulas, pace.clients, t, late < high)
        low, high = max(low, shortest_round(pace)), min(high, late)
        if staged[0] > low and staged[1] < high:
            formulas = partial(stage_formulas, pace.clients, t)
        low, high = max(low, staged[0]), min(high, staged[1])
    shared = shared_round(pace)
    if shared[0] > low or shared[1] < high:
        formulas = program_formulas
    mean = _between(max(low, shared[0]), min(high, shared[1]), conditions, formulas)
    return [mean, _per_second(mean), *(_returns(mean, pace, *every) if every is not None else [])]


def _between(low: float, high: float, conditions: tuple[str, ...], formulas: Formulas) -> ClosedForm:
    """Return bounds of the mean round; the integrals of two that coincide may differ by their error."""
    return ClosedForm(ROUND, "s", conditions, formulas, given=Range(min(low, high), max(low, high)))


def _returns(mean: ClosedForm, pace: Pace, least: list[float], most: list[float]) -> list[Finding]:
    """Return bounds of the steps from one of a client to its next, from bounds of the clients' rates."""
    groups: dict[tuple[float, float], list[int]] = {}
    for client, pair in zip(pace.cycles.clients, zip(least, most, strict=True), strict=True):
        groups.setdefault(pair, []).append(client)
    return [
        replace(
            mean, name=RETURN, unit="steps", clients=tuple(group),
            given=Range(1 / (mean.mean.high * fast), 1 / (mean.mean.low * slow)),
        )
        for (slow, fast), group in groups.items()
        if slow > 0
    ]  # fmt: skip
