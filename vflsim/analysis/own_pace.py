"""Protocols whose clients proceed at their own pace: asynchronous (t = 1), and t-synchronous without ``cancel``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp
from typing_extensions import override

from vflsim.analysis.afresh import check_recursion
from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import ClosedForm, Finding, Range
from vflsim.analysis.formulas import chain_formulas, pooled_formulas, rate_formulas, round_formulas
from vflsim.analysis.lockstep import law_of_rounds
from vflsim.analysis.rounds import ROUND, ages, exponential_rate, groups_of, numbered, used_probabilities
from vflsim.analysis.stages import Turn, Unanalysable
from vflsim.errors import TooLargeError
from vflsim.timing.delays.sums import shifted
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import mixture, order_statistic, union


def working_on(cycle: Law, rate: float, clients: int, t: int, service: float) -> Law:
    """Give the law of a step's duration in the long run, for identical clients with exponential cycles of ``rate``.

    The server takes the first t arrivals and ``service`` seconds for a step; late clients arrive later, and wait if
    the server is busy. A late client's residual time is distributed like a new one, so a step leaves behind only the
    number n that wait when it ends: n' = max(n − t, 0) + Binomial(M − max(n, t), 1 − e^(−rate · service)). Given n, the
    next step lasts as long as the (t − n)-th smallest of M − n cycles, and the service. A chain of M − t + 1 states.
    """
    share = waiting(rate, clients, t, service)
    steps = ((float(p), shifted(_gather(cycle, clients - n, t - n), service)) for n, p in enumerate(share) if p > 0)
    return mixture(steps)


def waiting(rate: float, clients: int, t: int, service: float) -> Floats:
    """Give the stationary distribution of the number of arrivals that wait when a step has ended, (M − t + 1,)."""
    arrives = -math.expm1(-rate * service)
    states = clients - t + 1
    moves = np.zeros((states, states))
    for n in range(states):
        surplus, going = max(n - t, 0), clients - max(n, t)
        for k in range(going + 1):
            moves[n, surplus + k] += math.comb(going, k) * arrives**k * (1 - arrives) ** (going - k)
    # π (P − I) = 0 with Σ π = 1: one equation is superfluous, and makes room for the sum.
    equations = moves.T - np.eye(states)
    equations[-1] = 1.0
    share = np.linalg.solve(equations, np.eye(states)[-1]).clip(0.0)
    return np.asarray(share / share.sum())


def _gather(cycle: Law, going: int, missing: int) -> Law:
    return Point(0.0) if missing <= 0 else order_statistic([cycle] * going, missing)


def repairman_rates(means: Sequence[float], service: float, shared: Sequence[float] = ()) -> list[float]:
    """Give the steps per second by each client when a server takes exponential times, in order of arrival.

    ``means`` are those of the clients' cycles without the server and without transfers over ``shared`` links. They may
    have any laws. ``service`` is the mean of the server's time, 0 if it takes none. ``shared`` are the mean transfers
    over links that are divided equally among all messages on them; transfers, too, may have any law.

    Product form of a closed network of a delay station, a queue and processor-sharing stations (Baskett, Chandy, Muntz
    & Palacios 1975, Open, Closed, and Mixed Networks of Queues with Different Classes of Customers, Journal of the ACM
    22: 248–260). With e_k the elementary symmetric polynomials of the means and h_n the complete ones of service and
    transfers, G(clients) = Σ_n n! h_n e_{M−n}, and client m's rate is G(the others) / G(all): what mean-value analysis
    (Reiser & Lavenberg 1980) computes step by step. All in logarithms: G leaves the range of floats from 170 clients.
    """
    stations = _complete([service, *shared], len(means))
    whole, known = _constant(means, stations), dict[float, float]()
    for place, mean in enumerate(means):
        if mean not in known:
            known[mean] = float(np.exp(_constant([*means[:place], *means[place + 1 :]], stations) - whole))
    return [known[mean] for mean in means]


def _constant(means: Sequence[float], stations: Floats) -> float:
    """Return log G."""
    clients = len(means)
    symmetric = np.full(clients + 1, -np.inf)
    symmetric[0] = 0.0
    for mean in means:
        symmetric[1:] = np.logaddexp(symmetric[1:], _log(mean) + symmetric[:-1])
    n = np.arange(clients + 1)
    return float(logsumexp(gammaln(n + 1) + stations[: clients + 1] + symmetric[::-1]))


def _complete(times: Sequence[float], most: int) -> Floats:
    """Return the logarithms of the complete symmetric polynomials h_0 to h_most."""
    logs = np.full(most + 1, -np.inf)
    logs[0] = 0.0
    for time in times:
        for n in range(1, most + 1):
            logs[n] = np.logaddexp(logs[n], _log(time) + logs[n - 1])
    return logs


def _log(time: float) -> float:
    return float(np.log(time)) if time > 0 else -np.inf


_DENSITY = 0.1
"""The least share of a cycle's law that has a density: with less, phases are forgotten too slowly for a long run."""


def forgets(law: Law) -> bool:
    """Return whether a renewal process with intervals of ``law`` forgets when it began: enough of it has a density."""
    try:
        return law.atoms().mass <= 1 - _DENSITY
    except TooLargeError:  # a sum of values alone, of which there are too many to list
        return False


def pooled_interval(cycles: Sequence[Law]) -> Law | None:
    """Give the law of the time between two steps of a server that steps instantly after every cycle of a client.

    In the long run, over all steps: a step by client m (which a share λ_m / λ of them is) renews m, while the others
    have their stationary residual times to go (Cox & Smith 1954): P(T > x) = Σ_m λ_m/λ · S_m(x) ∏_{j≠m} R_j(x), with
    S_m the survival function of m's cycle, R_j that of j's residual time, λ_m = 1/E C_m and λ = Σ λ_m.
    None if two clients' cycles have hardly any density: then the law may depend on their beginning for ever.
    """
    if any(law.expectation() <= 0 for law in cycles):
        return None
    if sum(not forgets(law) for law in cycles) > 1:
        return None
    return cycles[0] if len(cycles) == 1 else Pooled(tuple(Counter(cycles).items()))


@final
@dataclass(frozen=True)
class Pooled(Law):
    """The time between neighbouring events of independent stationary renewal processes, alike ones counted."""

    groups: tuple[tuple[Law, int], ...]

    @property
    @override
    def support(self) -> tuple[float, float]:
        return 0.0, min(law.support[1] for law, _ in self.groups)

    @property
    @override
    def breaks(self) -> Floats:
        return union(law for law, _ in self.groups)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return 1.0 - self.survival(x)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        points = floats(x)
        residuals = [(law.excess(points) / law.expectation()).clip(0.0, 1.0) for law, _ in self.groups]
        total = np.zeros(points.shape)
        for (law, count), residual in zip(self.groups, residuals, strict=True):
            others = residual ** (count - 1)
            for (other, n), chance in zip(self.groups, residuals, strict=True):
                if other is not law:
                    others = others * chance**n
            total += count / law.expectation() * law.survival(points) * others
        return np.asarray(np.where(points < 0, 1.0, np.clip(total * self.expectation(), 0.0, 1.0)))

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @property
    @override
    def tail_index(self) -> float:
        return 1 + sum(count * (law.tail_index - 1) for law, count in self.groups)

    @override
    def expectation(self) -> float:
        return 1 / math.fsum(count / law.expectation() for law, count in self.groups)


# --- findings ---------------------------------------------------------------------------------------------------------


LONG_RUN = "in the long run, over all server steps"
ALONE = "no message waits for a link"
RETURN = "steps from one of its own to the next"
WAITS = "a step waits for the server, for links, or for clients that are late from steps before: no law is known"
MEMORYLESS = "cycles are exponential: a late client has as long to go as one that begins"


def own_pace(cycles: Cycles, t: int) -> tuple[Finding, ...]:
    """Return the laws of steps on the first t arrivals; late arrivals count for a later step.

    They are known if clients are independent (the server takes no time and t = 1), memoryless, or in a network of
    product form. Raises Unanalysable if not.
    """
    if len(cycles.clients) == 1:
        return (law_of_rounds(cycles),)
    check_recursion(len(cycles.clients), t)
    turn = cycles.turns[0]
    laws = cycles.cycles(turn)
    services = {cycles.service(rows) for each in cycles.turns for rows in (each.now, t * each.now)}
    alone = cycles.alone
    settled = alone and len(services) == 1 and all(cycles.cycles(each) == laws for each in cycles.turns)
    findings: list[Finding] = []
    if settled:
        findings = _exact(cycles, laws, services.pop(), t)
    elif alone and t == 1 and services == {Point(0.0)}:
        findings = _rates(cycles, _means(cycles))
    elif t == 1 and len(services) == 1:
        findings = _product_form(cycles, services.pop())
    if not findings:
        raise Unanalysable(WAITS)
    return tuple(findings)


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
        return [exact, _per_second(exact), *(ages(cycles.clients, used_probabilities(laws, t), t) if few else [])]
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
    return _product_form(cycles, service) if t == 1 else []


def _product_form(cycles: Cycles, service: Law) -> list[Finding]:
    """Return the exact rates of a network of product form: exponential steps or none, and links without queues."""
    at_once = service == Point(0.0)
    shared = () if cycles.alone else _shared(cycles)
    if shared is None or not (at_once or exponential_rate(service) is not None):
        return []
    full = Turn(1.0, max(turn.before for turn in cycles.turns), max(turn.now for turn in cycles.turns))
    if at_once and not all(map(forgets, cycles.cycles(full))):
        return []  # cycles without a density may keep their phases for ever
    means = [max(0.0, mean - math.fsum(shared)) for mean in _means(cycles)]
    why = [] if at_once else ["exponential server steps in order of arrival"]
    why += ["messages divide the server's links equally"] if shared else [ALONE]
    steps = repairman_rates(means, service.expectation(), shared)
    return _steps(cycles, steps, (LONG_RUN, f"product form: {', '.join(why)}"))


def _shared(cycles: Cycles) -> tuple[float, ...] | None:
    """Return the mean transfers down and up of every client alone, if the server's links divide themselves equally.

    None if messages wait in a queue, if clients' own links slow them down, or if clients differ.
    """
    if cycles.queued or not all(map(cycles.slowed_by_server, cycles.turns)):
        return None
    transfers, shares = set[tuple[float, ...]](), [turn.share for turn in cycles.turns]
    for each in zip(*map(cycles.transfers, cycles.turns), strict=True):
        transfers.add(tuple(math.fsum(map(mul, shares, way)) for way in zip(*each, strict=True)))
    return transfers.pop() if len(transfers) == 1 else None


def _rates(cycles: Cycles, means: list[float]) -> list[Finding]:
    """Return the laws of clients that never wait for one another: each steps once per cycle."""
    if min(means) <= 0:
        return []
    return _steps(cycles, [1 / mean for mean in means], (LONG_RUN, ALONE, "clients cycle independently of each other"))


def _steps(cycles: Cycles, rates: list[float], conditions: tuple[str, ...]) -> list[Finding]:
    """Return the mean round, steps per second, and steps from one of a client to its next (Little's law)."""
    whole, every = math.fsum(rates), (*conditions, *cycles.mixed)
    groups: dict[float, list[int]] = {}
    for client, rate in zip(cycles.clients, rates, strict=True):
        groups.setdefault(rate, []).append(client)
    formulas = lambda: rate_formulas([(rate, numbered(group)) for rate, group in groups.items()])  # noqa: E731
    mean = ClosedForm(ROUND, "s", every, formulas, given=Range.of(1 / whole))
    returns = [
        ClosedForm(RETURN, "steps", every, formulas, given=Range.of(whole / rate), clients=tuple(group))
        for rate, group in groups.items()
    ]
    return [mean, _per_second(mean), *returns]


def _per_second(form: ClosedForm) -> ClosedForm:
    mean = form.mean
    return ClosedForm(
        "server steps per second", "1/s", form.conditions, form.formulas, given=Range(1 / mean.high, 1 / mean.low)
    )


def _means(cycles: Cycles) -> list[float]:
    """Return the mean cycle of every client."""
    each = [[turn.share * law.expectation() for law in cycles.cycles(turn)] for turn in cycles.turns]
    return [math.fsum(parts) for parts in zip(*each, strict=True)]
