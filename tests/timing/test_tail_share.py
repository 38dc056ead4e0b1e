"""How much of a law's variance lies in its slowest draws."""

import math

import numpy as np
import pytest

from vflsim.timing.delays import Constant, Delay, Exponential, LogNormal, Mixture, Normal, Pareto, Uniform
from vflsim.timing.tail_share import tail_share

RARE = Mixture(weights=(99, 1), parts=(Constant(value=0.02), Constant(value=100)))


def exponential(part: float) -> float:
    """∫ (x − 1)² e^(−x) beyond the quantile a = −ln part: part · ((a − 1)² + 2 (a − 1) + 2)."""
    over = -math.log(part) - 1
    return part * (over * over + 2 * over + 2)


@pytest.mark.parametrize("draws", [3, 10, 30, 1000])
def test_the_share_of_an_exponential_law_has_a_formula_whatever_its_mean(draws: int) -> None:
    for mean in (1e-3, 5.0):
        assert tail_share(Exponential(mean=mean), draws) == pytest.approx(exponential(1 / draws), rel=1e-9)


@pytest.mark.parametrize(
    ("law", "draws"), [(Pareto(shape=3, minimum=1), 20), (LogNormal(median=2, sigma=0.8), 50), (RARE, 150), (RARE, 20)]
)
def test_it_is_the_integral_of_the_squared_distance_over_the_upper_levels(law: Delay, draws: int) -> None:
    log = np.linspace(0, 30, 400_001)  # level 1 − e^(−log) / draws
    levels = np.exp(-(log[1:] + log[:-1]) / 2) / draws
    far = (law.inverse_cdf(1 - levels) - law.expectation()) ** 2
    whole = float((far * levels * np.diff(log)).sum())
    assert tail_share(law, draws) == pytest.approx(whole / law.variance(), rel=2e-3)


@pytest.mark.parametrize(
    ("law", "draws", "worrying"),
    [
        (Exponential(mean=1), 1, True),
        (Exponential(mean=1), 30, False),
        (LogNormal(median=1, sigma=1.5), 30, True),
        (Pareto(shape=2.2, minimum=1), 150, True),
        (Pareto(shape=1.5, minimum=1), 10**6, True),
        (Uniform(low=0.01, high=0.02), 1, False),
        (Normal(mean=1, sd=0.1), 1, False),
        (Constant(value=3), 1, False),
    ],
)
def test_over_half_of_the_variance_marks_the_laws_whose_means_are_far_from_normal(
    law: Delay, draws: int, worrying: bool
) -> None:
    assert (tail_share(law, draws) > 0.5) is worrying
