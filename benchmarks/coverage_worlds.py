"""Rounds with a known truth, for ``coverage.py``: laws, bursts, correlated rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import norm

from vflsim.timing.delays import Delay, Exponential, LogNormal, Mixture, Pareto

Floats = npt.NDArray[np.float64]
PHI = 0.9
STAY = {"calm": 200, "busy": 50}
"""Mean stays of the bursts, in rounds."""


@dataclass(frozen=True)
class World:
    """Rounds of one kind: ``draw(rng, runs, rounds)`` gives durations (runs, rounds), ``law`` that of a round."""

    law: Delay
    draw: Callable[[np.random.Generator, int, int], Floats]
    cycle: int = 1
    """Rounds of a burst and of the calm before it."""


def independent(law: Delay) -> World:
    """Rounds that are independent draws of a law."""
    return World(law, lambda rng, runs, rounds: law.inverse_cdf(rng.random((runs, rounds))))


def correlated(rng: np.random.Generator, runs: int, rounds: int) -> Floats:
    """Exponential rounds whose normal scores are an autoregression."""
    noise = math.sqrt(1 - PHI**2) * rng.normal(size=(runs, rounds))
    noise[:, 0] /= math.sqrt(1 - PHI**2)
    scores = lfilter([1.0], [1.0, -PHI], noise, axis=1)
    return -np.log(norm.sf(scores))


def bursts(rng: np.random.Generator, runs: int, rounds: int) -> Floats:
    """Exponential rounds of mean 1, and of mean 10 during bursts; stays of geometric length."""
    state = rng.random(runs) < STAY["busy"] / sum(STAY.values())
    leave = rng.random((rounds, runs))
    states = np.empty((rounds, runs), np.bool_)
    for number in range(rounds):
        states[number] = state
        state = state ^ (leave[number] < np.where(state, 1 / STAY["busy"], 1 / STAY["calm"]))
    return rng.exponential(size=(runs, rounds)) * np.where(states.T, 10.0, 1.0)


EXPONENTIAL = Exponential(mean=1.0)
MIXED = Mixture(weights=(float(STAY["calm"]), float(STAY["busy"])), parts=(EXPONENTIAL, Exponential(mean=10.0)))
WORLDS = {
    "exponential": independent(EXPONENTIAL),
    "log-normal 1.5": independent(LogNormal(median=1.0, sigma=1.5)),
    "Pareto 2.2": independent(Pareto(shape=2.2, minimum=1.0)),
    "Pareto 1.5": independent(Pareto(shape=1.5, minimum=1.0)),
    "bursts": World(MIXED, bursts, sum(STAY.values())),
    "correlated": World(EXPONENTIAL, correlated),
}
SEEDS = (5, 10)
ROUNDS = (1, 30, 300)


def lengths(world: World) -> tuple[int, ...]:
    """Return how many rounds runs have; of bursts also so many that there are twelve cycles."""
    return (*ROUNDS, 3000) if world.cycle > 1 else ROUNDS


def sums(name: str, world: World, seeds: int, rounds: int, studies: int) -> Floats:
    """Draw what runs of so many rounds last in all, as (studies, seeds)."""
    rng = np.random.Generator(np.random.Philox([len(name), seeds, rounds, studies]))
    block = min(50, studies)
    parts = [world.draw(rng, seeds * block, rounds).sum(axis=1) for _ in range(-(-studies // block))]
    return np.concatenate(parts).reshape(-1, seeds)[:studies]
