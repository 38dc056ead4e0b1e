"""Product form against the Markov chain of a tiny network, solved with numpy, and against mean-value analysis."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import count

import numpy as np
import pytest

from vflsim.analysis.own_pace import repairman_rates

State = tuple[str, tuple[int, ...]]
"""Where each client is (t: by itself, a and b: on a shared link, s: at the server), and the server's queue."""


def chain_rates(means: list[float], service: float, links: tuple[float, float]) -> list[float]:
    """Steps per second by each client; all times exponential, each link divided equally among its messages."""
    numbers: dict[State, int] = defaultdict(count().__next__)
    pending: list[State] = [("t" * len(means), ())]
    moves: list[tuple[int, int, float, int | None]] = []
    while pending:
        state = pending.pop()
        for after, rate, stepped in _moves(state, means, service, links):
            if after not in numbers:
                pending.append(after)
            moves.append((numbers[state], numbers[after], rate, stepped))
    generator = np.zeros((len(numbers), len(numbers)))
    for before, after_, rate, _ in moves:
        generator[before, after_] += rate
        generator[before, before] -= rate
    equations = np.vstack([generator.T, np.ones(len(numbers))])
    share = np.linalg.lstsq(equations, np.append(np.zeros(len(numbers)), 1.0), rcond=None)[0]
    found = [0.0] * len(means)
    for before, _, rate, stepped in moves:
        if stepped is not None:
            found[stepped] += float(share[before]) * rate
    return found


def _moves(
    state: State, means: list[float], service: float, links: tuple[float, float]
) -> list[tuple[State, float, int | None]]:
    places, queue = state
    found: list[tuple[State, float, int | None]] = []
    for client, place in enumerate(places):
        if place == "t":
            found.append(((_at(places, client, "a"), queue), 1 / means[client], None))
        elif place == "a":
            found.append(((_at(places, client, "s"), (*queue, client)), 1 / links[0] / places.count("a"), None))
        elif place == "b":
            found.append(((_at(places, client, "t"), queue), 1 / links[1] / places.count("b"), None))
    if queue:
        found.append(((_at(places, queue[0], "b"), queue[1:]), 1 / service, queue[0]))
    return found


def _at(places: str, client: int, place: str) -> str:
    return places[:client] + place + places[client + 1 :]


@pytest.mark.parametrize("means", [[1.0, 1.0], [0.2, 3.0], [0.5, 1.0, 2.0]])
@pytest.mark.parametrize(("service", "links"), [(0.3, (0.4, 0.2)), (1.0, (0.05, 2.0))])
def test_product_form_is_the_solution_of_the_markov_chain(
    means: list[float], service: float, links: tuple[float, float]
) -> None:
    assert repairman_rates(means, service, links) == pytest.approx(chain_rates(means, service, links), rel=1e-9)


@pytest.mark.parametrize("clients", [2, 50, 400])
def test_rates_of_alike_clients_are_those_of_mean_value_analysis(clients: int) -> None:
    mean, stations = 2.0, (0.01, 0.004, 0.02)
    queues, rate = np.zeros(len(stations)), 0.0
    for population in range(1, clients + 1):  # Reiser & Lavenberg 1980
        times = np.array(stations) * (1 + queues)
        rate = population / (mean + times.sum())
        queues = rate * times
    found = repairman_rates([mean] * clients, stations[0], stations[1:])
    assert found == pytest.approx([rate / clients] * clients, rel=1e-9)
    assert math.fsum(found) <= (1 + 1e-9) / max(stations)
