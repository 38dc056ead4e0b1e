"""Skewness as a rule of thumb, against scipy's formulas."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from vflsim.timing.delays import Constant, Delay, Exponential, LogNormal, Mixture, Pareto, Uniform
from vflsim.timing.skewness import skewness

RARE = Mixture(weights=(99.0, 1.0), parts=(Constant(value=1.0), Constant(value=100.0)))


@pytest.mark.parametrize(
    ("law", "known"),
    [
        (Exponential(mean=3.0), 2.0),
        (Uniform(low=1.0, high=4.0), 0.0),
        (LogNormal(median=2.0, sigma=0.5), float(stats.lognorm(0.5).stats("s"))),
        (LogNormal(median=1.0, sigma=1.5), float(stats.lognorm(1.5).stats("s"))),
        (Pareto(shape=4.0, minimum=1.0), float(stats.pareto(4).stats("s"))),
        (RARE, float(stats.bernoulli(0.01).stats("s"))),
        (Constant(value=2.0), 0.0),
    ],
)
def test_it_is_that_of_scipy_within_a_few_percent(law: Delay, known: float) -> None:
    assert skewness(law) == pytest.approx(known, rel=0.03, abs=0.01)


def test_an_infinite_third_moment_is_large_and_an_infinite_variance_infinite() -> None:
    assert skewness(Pareto(shape=2.2, minimum=1.0)) > 1000
    assert skewness(Pareto(shape=1.5, minimum=1.0)) == math.inf
