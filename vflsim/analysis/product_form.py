"""Closed queueing networks of product form: clients that each pass a server, and links that they share fairly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from vflsim.timing.floats import Floats


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
    found = np.full(most + 1, -np.inf)
    found[0] = 0.0
    for time in times:
        for n in range(1, most + 1):
            found[n] = np.logaddexp(found[n], _log(time) + found[n - 1])
    return found


def _log(time: float) -> float:
    return float(np.log(time)) if time > 0 else -np.inf
