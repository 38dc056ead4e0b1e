"""The duration of a server step agrees with order statistics of the upload delays.

Worlds with nothing but upload delays, timing only, 1,000 steps, or 2,500. A mean must lie within its 99.9 % interval
(an error level of 0.1 % a check, fixed seeds). Exponential delays cannot tell t-synchronous from its cancelling
variant, being memoryless; uniform ones can.
"""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from thorough import is_thorough

import vflsim
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.run import run_protocol

N, T, STEPS = 8, 3, 2_500 if is_thorough() else 1_000
Z = float(stats.norm.ppf(1 - 0.001 / 2))
BATCHES = 50
"""Batch means: 20 steps each, or 50, are long enough that neighbouring means hardly depend on each other."""

DELAYS: dict[str, dict[str, Any]] = {
    "exponential": {"kind": "exponential", "mean": 2.0},
    "shifted": {"kind": "shifted_exponential", "shift": 0.5, "mean": 1.5},
    "uniform": {"kind": "uniform", "low": 0.5, "high": 3.5},
}


def order_statistic(delay: str, t: int) -> float:
    """Mean of the t-th smallest of N independent delays (textbook forms)."""
    harmonic = sum(1 / k for k in range(N - t + 1, N + 1))
    said = DELAYS[delay]
    if delay == "uniform":
        return float(said["low"] + (said["high"] - said["low"]) * t / (N + 1))
    return float(said.get("shift", 0.0) + said["mean"] * harmonic)


def durations(protocol: dict[str, Any], delay: str) -> np.ndarray:
    return simulated(json.dumps(protocol), delay)


@cache
def simulated(protocol: str, delay: str) -> np.ndarray:
    scenario = vflsim.load(
        {
            "name": "durations",
            "data": {"name": "digits"},
            "partition": {"clients": N, "by": "columns"},
            "models": {"client": {"kind": "linear", "embedding": 2}, "aggregate": "mean", "server": {"kind": "linear"}},
            "training": {
                "batch": 64,
                "client_optimizer": {"kind": "sgd", "lr": 0.1},
                "server_optimizer": {"kind": "sgd", "lr": 0.1},
            },
            "timing": {"clients": {"select": "all", "upload_delay": DELAYS[delay]}},
            "protocols": {"it": json.loads(protocol)},
            "stop": {"rounds": STEPS},
            "evaluate": {"every": f"{STEPS} rounds"},
            "record": "rounds",
        }
    )
    outcome = run_protocol(scenario, "it", 0, ScenarioData(scenario).of(scenario.training), timing_only=True)
    assert outcome.error is None
    rounds = outcome.tables.rounds.to_pandas()
    assert len(rounds) == STEPS
    return (rounds["end_s"] - rounds["start_s"]).to_numpy()


def half_width(values: np.ndarray) -> float:
    """Half the 99.9 % interval of the mean, by batch means (steps may depend on their neighbours)."""
    means = values.reshape(BATCHES, -1).mean(axis=1)
    return float(stats.t.ppf(1 - 0.001 / 2, BATCHES - 1) * means.std(ddof=1) / np.sqrt(BATCHES))


def work_on(delay: str, steps: int, generator: np.random.Generator) -> np.ndarray:
    """Direct Monte Carlo of t-synchronous steps without cancelling: whoever is late carries on with the same delay."""
    said = DELAYS[delay]

    def draw(n: int) -> np.ndarray:
        if delay == "uniform":
            return generator.uniform(said["low"], said["high"], n)
        return said.get("shift", 0.0) + generator.exponential(said["mean"], n)

    ready, now, ends = draw(N), 0.0, np.empty(steps)
    for step in range(steps):
        first = np.argsort(ready)[:T]
        now = max(now, ready[first].max())
        ends[step] = now
        ready[first] = now + draw(T)
    return np.diff(ends, prepend=0.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("delay", DELAYS)
def test_synchronous_steps_last_the_maximum(delay: str) -> None:
    found = durations({"kind": "synchronous"}, delay)
    assert abs(found.mean() - order_statistic(delay, N)) < Z * found.std(ddof=1) / np.sqrt(STEPS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("delay", DELAYS)
def test_cancelling_steps_last_the_order_statistic(delay: str) -> None:
    found = durations({"kind": "t_synchronous", "t": T, "cancel": True}, delay)
    assert abs(found.mean() - order_statistic(delay, T)) < Z * found.std(ddof=1) / np.sqrt(STEPS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("delay", DELAYS)
def test_ignoring_all_but_the_fastest_agrees_with_direct_simulation(delay: str) -> None:
    """A dropped client finishes its upload before it joins: not the order statistic, but a race of its own."""
    said = DELAYS[delay]
    generator = np.random.default_rng(7)

    def draw(n: int) -> np.ndarray:
        if delay == "uniform":
            return generator.uniform(said["low"], said["high"], n)
        return said.get("shift", 0.0) + generator.exponential(said["mean"], n)

    # A late client's upload is of no use; when it ends, the client draws anew for the round that is then current.
    ready, useful, now, ends = draw(N), np.ones(N, bool), 0.0, np.empty(STEPS)
    for step in range(STEPS):
        arrived: list[int] = []
        while len(arrived) < T:
            waiting = [m for m in range(N) if m not in arrived]
            m = min(waiting, key=lambda m: ready[m])
            now = max(now, ready[m])
            if useful[m]:
                arrived.append(m)
            else:
                ready[m], useful[m] = now + draw(1)[0], True
        ends[step] = now
        useful[:] = False
        ready[arrived], useful[arrived] = now + draw(T), True
    expected = np.diff(ends, prepend=0.0)
    found = durations({"kind": "ignore", "fastest": T}, delay)
    assert abs(found.mean() - expected.mean()) < np.hypot(half_width(found), half_width(expected))


def test_working_on_is_no_different_for_exponential_delays() -> None:
    found = durations({"kind": "t_synchronous", "t": T}, "exponential")
    assert abs(found.mean() - order_statistic("exponential", T)) < half_width(found)


def test_working_on_agrees_with_direct_simulation_for_uniform_delays() -> None:
    found = durations({"kind": "t_synchronous", "t": T}, "uniform")
    expected = work_on("uniform", 20 * STEPS, np.random.default_rng(11))
    assert abs(found.mean() - expected.mean()) < np.hypot(half_width(found), half_width(expected))


def test_uniform_delays_tell_the_two_variants_apart() -> None:
    working_on = durations({"kind": "t_synchronous", "t": T}, "uniform")
    cancelling = durations({"kind": "t_synchronous", "t": T, "cancel": True}, "uniform")
    direct = work_on("uniform", 20 * STEPS, np.random.default_rng(11)).mean()
    assert abs(working_on.mean() - order_statistic("uniform", T)) > half_width(working_on)
    assert abs(cancelling.mean() - direct) > half_width(cancelling)


def test_asynchronous_steps_come_at_the_clients_joint_rate() -> None:
    found = durations({"kind": "asynchronous"}, "exponential")
    assert abs(found.mean() - DELAYS["exponential"]["mean"] / N) < half_width(found)
