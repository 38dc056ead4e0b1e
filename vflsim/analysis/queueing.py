"""t-synchronous steps that late uploads survive: with memoryless cycles, the steps form a Markov chain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from vflsim.timing.delays.sums import shifted
from vflsim.timing.floats import Floats
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import mixture, order_statistic


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
        left, going = max(n - t, 0), clients - max(n, t)
        for k in range(going + 1):
            moves[n, left + k] += math.comb(going, k) * arrives**k * (1 - arrives) ** (going - k)
    # π (P − I) = 0 with Σ π = 1: one equation is superfluous, and makes room for the sum.
    equations = moves.T - np.eye(states)
    equations[-1] = 1.0
    wanted = np.zeros(states)
    wanted[-1] = 1.0
    share = np.linalg.solve(equations, wanted).clip(0.0)
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
