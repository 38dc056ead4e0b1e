"""Bounds of clients at their own pace bound what an independent simulation of the queues measures."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from station_worlds import Stations, drawn, half_width, mean_rounds

from vflsim.analysis import working_on
from vflsim.analysis.ageing import largest_hazard, new_better_than_used, no_shorter, parts_of
from vflsim.analysis.pace import Pace
from vflsim.analysis.several_arrivals import longest_round, shortest_round
from vflsim.analysis.single_arrivals import rates
from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import (
    Constant,
    Delay,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    Maximum,
    Mixture,
    Normal,
    Pareto,
    ShiftedExponential,
    Sum,
    Uniform,
    Weibull,
)
from vflsim.timing.law import Law, Point
from vflsim.timing.order import order_statistic
from vflsim.timing.sums import shifted, total


def bounds(world: Stations) -> tuple[float, float]:
    """The mean round's, without those that hold for all laws."""
    pace = Pace(cast(Any, world), world.t)
    if world.t > 1:
        return shortest_round(pace), longest_round(pace)
    low, high = rates(pace)
    return 1 / math.fsum(high), 1 / math.fsum(low)


def agree(seeds: range, steps: int) -> None:
    """Check random worlds; a false alarm has a probability of 10⁻⁵ each."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        world = drawn(rng)
        low, high = bounds(world)
        rounds = mean_rounds(world, steps, rng)
        margin = half_width(rounds)
        assert low - margin <= rounds.mean() <= high + margin, f"world {seed}: {low} {rounds.mean()} {high} {world}"


@pytest.mark.slow
def test_bounds_hold_in_random_networks() -> None:
    agree(range(16), 1_000)


@pytest.mark.slow
def test_bounds_hold_in_many_random_networks() -> None:
    agree(range(100, 300), 6_000)


def exponential(*means: float) -> list[list[Law]]:
    return [[OfDelay(Exponential(mean=mean))] for mean in means]


def plain(t: int, step: float, private: list[list[Law]], **changes: Any) -> Stations:
    nothing = [0.0] * len(private)
    given = {"latency_down": nothing, "latency_up": nothing, "down": nothing, "up": nothing, "links_wait": False}
    return Stations(t, step, private, **(given | changes))


@pytest.mark.parametrize("t", [2, 3])
def test_bounds_of_memoryless_cycles_and_a_server_at_once_are_the_exact_mean(t: int) -> None:
    private = exponential(0.1, 0.1, 0.4, 1.0, 2.0)
    exact = order_statistic([law for (law,) in private], t).expectation()
    low, high = bounds(plain(t, 0.0, private))
    assert low == pytest.approx(exact, rel=2e-3)
    assert low <= exact <= high
    assert high == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("t", "step"), [(1, 0.02), (1, 0.3), (2, 0.01), (4, 0.1)])
def test_bounds_enclose_the_stationary_mean_of_the_markov_chain(t: int, step: float) -> None:
    law = OfDelay(Exponential(mean=1.0))
    exact = working_on(law, 1.0, 6, t, step).expectation()
    low, high = bounds(plain(t, step, exponential(*[1.0] * 6)))
    assert low <= exact <= high
    assert step > 0.1 or high < 1.06 * low


def afresh(quick: int, mean: float, step: float, down: float, up: float) -> tuple[float, float]:
    """The mean round of quick clients that every step uses, so that rounds are independent; and its error."""
    rng = np.random.default_rng(3)
    joins = np.sort(rng.exponential(mean, (400_000, quick)) + (1 + np.arange(quick)) * down)
    done = np.zeros(len(joins))
    for embedding in joins.T:
        done = np.maximum(done, embedding) + up
    return float(done.mean()) + step, 5 * float(done.std()) / math.sqrt(len(done))


@pytest.mark.parametrize(("down", "up", "widest"), [(0.01, 0.0, 1.01), (0.0, 0.01, 1.04), (0.01, 0.01, 1.04)])
def test_bounds_are_close_where_steps_use_the_same_quick_clients(down: float, up: float, widest: float) -> None:
    links: dict[str, Any] = {"down": [down] * 6, "up": [up] * 6, "links_wait": True}
    low, high = bounds(plain(4, 0.001, exponential(0.1, 0.1, 0.1, 0.1, 1e6, 1e6), **links))
    exact, error = afresh(4, 0.1, 0.001, down, up)
    assert low - error <= exact <= high + error
    assert high < widest * low


def chain_of_two(rates_: tuple[float, float], step: float) -> float:
    """The mean time between steps of two exponential clients and a constant server (t = 1), from its Markov chain.

    States after a step: whether the other client waits. The next step begins at once, or with the first arrival.
    """
    stay = [math.exp(-rate * step) for rate in rates_]
    whole = sum(rates_)
    # After a step for client i: the other one, j, is out (state i) or waits (state 2 + i).
    moves, gap = np.zeros((4, 4)), np.zeros(4)
    for i in (0, 1):
        j = 1 - i
        gap[i] = 1 / whole
        for served, p in ((i, rates_[i] / whole), (j, rates_[j] / whole)):
            moves[i, served] += p * stay[1 - served]
            moves[i, 2 + served] += p * (1 - stay[1 - served])
        moves[2 + i, j] += stay[i]
        moves[2 + i, 2 + j] += 1 - stay[i]
    equations = np.vstack([moves.T - np.eye(4), np.ones(4)])
    share = np.linalg.lstsq(equations, np.array([0, 0, 0, 0, 1.0]), rcond=None)[0]
    return float(share @ gap) + step


@pytest.mark.parametrize("means", [(1.0, 1.0), (0.1, 3.0), (0.2, 0.3)])
@pytest.mark.parametrize("step", [0.01, 0.1, 1.0])
def test_bounds_of_two_clients_enclose_the_solution_of_their_markov_chain(
    means: tuple[float, float], step: float
) -> None:
    exact = chain_of_two((1 / means[0], 1 / means[1]), step)
    low, high = bounds(plain(1, step, exponential(*means)))
    assert low <= exact <= high
    assert step > 0.05 * min(means) or high < 1.01 * low


def test_constant_stations_in_series_wait_like_the_slowest_alone() -> None:
    transfers = [0.03] * 4
    series = plain(1, 0.02, exponential(*[1.0] * 4), up=transfers, down=[0.01] * 4, links_wait=True)
    alone = plain(1, 0.03, exponential(*[1.0] * 4), latency_up=[0.03] * 4)
    waits = [mean_rounds(world, 4_000, np.random.default_rng(1)) for world in (series, alone)]
    assert abs(waits[0].mean() - waits[1].mean()) <= sum(map(half_width, waits))
    assert bounds(series) == pytest.approx(bounds(alone))


def test_waits_that_have_no_bound_leave_the_general_ones() -> None:
    heavy = [[OfDelay(Pareto(shape=1.5, mean=0.5))] for _ in range(4)]
    assert bounds(plain(2, 0.1, heavy))[1] == math.inf
    constants: list[list[Law]] = [[Point(1.0)], [Point(1.0)], [Point(2.0)]]
    low, high = bounds(plain(1, 0.1, constants))
    assert low == pytest.approx(1 / (2 / 1.1 + 1 / 2.1))
    assert high == pytest.approx(1 / (2 / 1.3 + 1 / 2.3))


LAWS: list[Delay] = [
    Constant(value=1.0), Exponential(mean=2.0), ShiftedExponential(shift=0.5, mean=1.0), Uniform(low=0.2, high=1.0),
    Normal(mean=0.3, sd=0.4), LogNormal(median=1.0, sigma=0.8), Gamma(shape=2.5, mean=1.0), Gamma(shape=0.5, mean=1.0),
    Weibull(shape=2.0, mean=1.0), Weibull(shape=0.7, mean=1.0), Pareto(shape=2.5, mean=1.0),
    HyperExponential(probabilities=(0.8, 0.2), means=(0.1, 2.0)),
    Mixture(weights=(1.0, 1.0), parts=(Exponential(mean=0.2), Exponential(mean=1.0))),
    Sum(parts=(Exponential(mean=0.2), Uniform(low=0.0, high=1.0))),
    Maximum(parts=(Exponential(mean=0.2), Exponential(mean=1.0))),
]  # fmt: skip
IDS = [f"{law.kind}-{number}" for number, law in enumerate(LAWS)]


@pytest.mark.parametrize("delay", LAWS, ids=IDS)
def test_no_time_ends_sooner_than_its_largest_hazard_rate_says(delay: Delay) -> None:
    law = shifted(OfDelay(delay, 0.0, 2.0), 0.1)
    rate = largest_hazard(law)
    x = np.linspace(0.0, float(law.quantile(0.999)), 400)
    later = law.survival(x[:, None] + np.array([0.01, 0.1, 1.0]))
    assert np.all(later >= law.survival(x)[:, None] * np.exp(-rate * np.array([0.01, 0.1, 1.0])) - 1e-9)


def test_hazard_rates_are_no_larger_than_they_must_be() -> None:
    assert largest_hazard(OfDelay(Exponential(mean=0.5), 1.0, 2.0)) == 1.0
    assert largest_hazard(total([Point(1.0), OfDelay(Exponential(mean=0.5)), OfDelay(Exponential(mean=0.25))])) == 2.0
    assert largest_hazard(OfDelay(Uniform(low=0, high=1))) == math.inf


@pytest.mark.parametrize("delay", LAWS, ids=IDS)
def test_times_that_are_new_better_than_used_have_no_longer_to_go(delay: Delay) -> None:
    x = np.linspace(0.0, float(delay.quantile(0.999)), 200)
    both = delay.survival(x[:, None] + x[None, :])
    each = delay.survival(x)[:, None] * delay.survival(x)[None, :]
    assert new_better_than_used(OfDelay(delay)) == bool(np.all(both <= each + 1e-9))


def test_stretched_parts_make_longer_times() -> None:
    part = OfDelay(Exponential(mean=1.0))
    short, long = total([Point(1.0), part]), total([Point(1.5), OfDelay(Exponential(mean=1.0), 0.0, 2.0)])
    assert no_shorter(long, short)
    assert not no_shorter(short, long)
    assert not no_shorter(total([Point(3.0), OfDelay(Uniform(low=0, high=1))]), short)


def test_a_constant_cycle_has_no_random_parts() -> None:
    assert parts_of(Point(0.25)) == (0.25, ())
