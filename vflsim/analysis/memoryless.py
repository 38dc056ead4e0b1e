"""t-synchronous steps that late uploads survive: with memoryless cycles, the steps form a Markov chain."""

from __future__ import annotations

import math

import numpy as np

from vflsim.timing.floats import Floats
from vflsim.timing.law import Law, Point, mixture
from vflsim.timing.order import order_statistic
from vflsim.timing.sums import shifted


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
