"""Clients in exponential stages: the Markov chain, and bounds that hold with constants and links."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from station_worlds import Stations, half_width, mean_rounds

from vflsim.analysis import working_on
from vflsim.analysis.pace import Pace
from vflsim.analysis.stage_bounds import stage_round, staged
from vflsim.analysis.stages import StageChain
from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import Exponential, ShiftedExponential, Uniform
from vflsim.timing.law import Law, Point
from vflsim.timing.sums import total


def exponential(mean: float) -> Law:
    return OfDelay(Exponential(mean=mean))


def world(t: int, step: float, private: list[list[Law]], **changes: Any) -> Stations:
    nothing = [0.0] * len(private)
    given = {"latency_down": nothing, "latency_up": nothing, "down": nothing, "up": nothing, "links_wait": False}
    return Stations(t, step, private, **(given | changes))


def bounds(of: Stations) -> tuple[float, float]:
    return stage_round(Pace(cast(Any, of), of.t))


@pytest.mark.parametrize(("clients", "t", "step"), [(4, 2, 0.3), (5, 3, 0.01), (6, 5, 2.0)])
def test_one_stage_of_alike_clients_has_the_mean_of_the_chain_of_numbers(clients: int, t: int, step: float) -> None:
    exact = working_on(exponential(1.0), 1.0, clients, t, step).expectation()
    low, high, _ = StageChain(((1.0,),) * clients, t, step).solution
    assert low == pytest.approx(exact, rel=1e-6)
    assert low * (1 - 1e-12) <= exact <= high * (1 + 1e-12)


@pytest.mark.parametrize("means", [(1.0, 0.2), (0.3, 3.0)])
def test_a_step_on_all_clients_lasts_as_long_as_the_slowest_of_all_stages(means: tuple[float, float]) -> None:
    low, high, _ = StageChain(tuple(tuple(1 / mean for mean in means) for _ in range(2)), 2, 0.1).solution
    x = np.linspace(0, 60, 200_001)
    cycle = total([exponential(mean) for mean in means])
    slowest = float(np.trapezoid(1 - cycle.cdf(x) ** 2, x))
    assert low == pytest.approx(0.1 + slowest, rel=1e-5)
    assert high == pytest.approx(low, rel=1e-6)


def test_constants_of_cycles_prolong_the_step_where_each_step_needs_a_client_of_the_one_before() -> None:
    private = [[Point(0.2), exponential(mean), exponential(0.3)] for mean in (0.1, 0.4, 1.0)]
    low, high = bounds(world(2, 0.1, private))
    chain = StageChain(tuple(tuple(sorted((1 / mean, 1 / 0.3))) for mean in (0.1, 0.4, 1.0)), 2, 0.1 + 0.2)
    assert (low, high) == pytest.approx(chain.solution[:2], rel=1e-9)
    rounds = mean_rounds(world(2, 0.1, private), 4_000, np.random.default_rng(5))
    assert abs(rounds.mean() - low) <= half_width(rounds)


def drawn(rng: np.random.Generator) -> Stations:
    """A network of 2 to 5 clients in one or two exponential stages, at any load, of which steps use half or more."""
    many = int(rng.integers(2, 6))
    load = float(np.exp(rng.uniform(np.log(0.002), np.log(0.2))))
    pool = [
        [exponential(float(np.exp(rng.uniform(np.log(0.05), np.log(2))))) for _ in range(rng.integers(1, 3))]
        for _ in range(2)
    ]

    def transfers() -> list[float]:
        least = load * float(rng.choice([0.2, 1.0]))
        return [least] * many if rng.random() < 0.7 else [least * float(rng.uniform(1, 2)) for _ in range(many)]

    return Stations(
        t=int(rng.integers(math.ceil(many / 2), many)) if many > 2 else 1,
        step=load * float(rng.choice([0.01, 1])),
        private=[[*pool[rng.integers(2)], Point(float(rng.choice([0, 0.05])))] for _ in range(many)],
        latency_down=[float(rng.choice([0, 0.02]))] * many,
        latency_up=[float(rng.choice([0, 0.02])) for _ in range(many)],
        down=transfers(),
        up=transfers(),
        links_wait=bool(rng.random() < 0.75),
    )


def agree(seeds: range, steps: int) -> None:
    """Check random worlds; a false alarm has a probability of 10⁻⁵ each."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        of = drawn(rng)
        low, high = bounds(of)
        rounds = mean_rounds(of, steps, rng)
        margin = half_width(rounds)
        assert low - margin <= rounds.mean() <= high + margin, f"world {seed}: {low} {rounds.mean()} {high} {of}"


def test_bounds_hold_in_random_networks() -> None:
    agree(range(12), 1_500)


@pytest.mark.slow
def test_bounds_hold_in_many_random_networks() -> None:
    agree(range(100, 300), 6_000)


def test_bounds_are_close_where_links_are_quick() -> None:
    private = [[exponential(0.01 * m)] * 2 for m in range(1, 8)]
    links: dict[str, Any] = {"down": [0.0003] * 7, "up": [0.0003] * 7, "links_wait": True}
    low, high = bounds(world(4, 0.001, private, **links))
    assert low < high < 1.04 * low
    plain = StageChain(tuple((1 / (0.01 * m),) * 2 for m in range(1, 8)), 4, 0.001).solution[0]
    assert low > plain + 0.0004


def test_bounds_know_nothing_where_order_matters_or_parts_are_not_exponential() -> None:
    nothing = (0.0, math.inf)
    assert bounds(world(2, 0.1, [[exponential(1.0)]] * 5)) == nothing
    assert bounds(world(3, 0.1, [[exponential(1.0)]] * 4 + [[OfDelay(Uniform(low=0, high=1))]])) == nothing
    assert bounds(world(3, 0.1, [[exponential(1.0)]] * 4 + [[Point(1.0)]])) == nothing
    assert bounds(world(10, 0.1, [[exponential(1.0)]] * 16)) == nothing  # 65,536 states


def test_constants_and_stages_of_a_cycle_are_told_apart() -> None:
    assert staged(exponential(0.5)) == (0.0, (2.0,))
    shifted = OfDelay(ShiftedExponential(shift=1.0, mean=2.0), 0.5, 2.0)
    assert staged(total([shifted, exponential(0.5), Point(0.25)])) == (2.75, (0.25, 2.0))
    assert staged(Point(1.0)) == (1.0, ())
    assert staged(total([exponential(0.5), OfDelay(Uniform(low=0, high=1))])) is None
