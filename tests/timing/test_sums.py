"""Sums of independent times against formulas: kinks, mixtures, atoms, heavy tails, and laws that are no delays."""

from itertools import product
from math import comb, factorial

import numpy as np
import pytest
from scipy import stats

from vflsim.timing.delays import Constant, Empirical, Exponential, HyperExponential, Mixture, Pareto, Sum, Uniform
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw, maximum, order_statistic

ERROR = 1e-5
UNIT = Uniform(low=0.0, high=1.0)


def irwin_hall(n: int, x: np.ndarray) -> np.ndarray:
    """The cdf of the sum of n uniform times on [0, 1]."""
    terms = [(-1) ** k * comb(n, k) * np.maximum(x - k, 0.0) ** n for k in range(n + 1)]
    return np.where(x >= n, 1.0, sum(terms) / factorial(n))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_sums_of_bounded_times_keep_their_kinks(n: int) -> None:
    x = np.linspace(0.0, n, 40 * n + 1)
    assert total([UNIT] * n).cdf(x) == pytest.approx(irwin_hall(n, x), abs=ERROR)
    assert total([OfDelay(UNIT, 0.0, 2.0)] * n).cdf(2 * x) == pytest.approx(irwin_hall(n, x), abs=ERROR)


def test_sums_of_mixtures_of_exponentials_are_mixtures_of_sums() -> None:
    law = HyperExponential(probabilities=(0.8, 0.2), means=(0.001, 1.0))
    x = np.geomspace(1e-4, 12.0, 60)
    both = 1 - (np.exp(-x) - 0.001 * np.exp(-x / 0.001)) / 0.999
    expected = 0.64 * stats.gamma(2, scale=0.001).cdf(x) + 0.32 * both + 0.04 * stats.gamma(2).cdf(x)
    assert Sum(parts=[law, law]).cdf(x) == pytest.approx(expected, abs=ERROR)


def test_sums_of_the_longest_of_several_times_are_as_precise() -> None:
    law = maximum([OfDelay(Exponential(mean=mean)) for mean in (0.05, 0.5, 0.5)])
    terms = {2.0: 2, 4.0: -1, 20.0: 1, 22.0: -2, 24.0: 1}  # P(T > x) = Σ c e^(−rate x), by inclusion and exclusion
    x = np.linspace(0.05, 6.0, 60)

    def both(a: float, b: float) -> np.ndarray:
        """∫ over the sum of two exponentials with rates a and b."""
        if a == b:
            return 1 - np.exp(-a * x) * (1 + a * x)
        return 1 - (b * np.exp(-a * x) - a * np.exp(-b * x)) / (b - a)

    expected = sum(c * d * both(a, b) for (a, c), (b, d) in product(terms.items(), repeat=2))
    assert total([law, law]).cdf(x) == pytest.approx(expected, abs=ERROR)


@pytest.mark.parametrize("t", [1, 2, 3])
def test_sums_know_the_jumps_of_order_statistics(t: int) -> None:
    """The t-th of three times that are 0 or 1 with 1/4 and 1/4, and else between, plus a uniform time."""
    part = Mixture(weights=(1, 1, 2), parts=(Constant(value=0.0), Constant(value=1.0), UNIT))
    law = order_statistic([OfDelay(part)] * 3, t)
    levels = np.array([sum(comb(3, k) * p**k * (1 - p) ** (3 - k) for k in range(t, 4)) for p in (0.25, 0.75)])
    assert law.atoms().values.tolist() == [0.0, 1.0]
    assert law.atoms().masses == pytest.approx([levels[0], 1 - levels[1]], abs=1e-14)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    y = (nodes + 1) / 2
    x = np.linspace(0.0, 2.0, 21)[:-1]
    low, high = np.maximum(x - 1, 0.0), np.minimum(x, 1.0)
    at = low[:, None] + (high - low)[:, None] * y
    p = 0.25 + at / 2
    inner = sum(comb(3, k) * p**k * (1 - p) ** (3 - k) for k in range(t, 4)) @ (weights / 2) * (high - low)
    assert total([law, OfDelay(UNIT)]).cdf(x) == pytest.approx(inner + np.maximum(x - 1, 0.0), abs=ERROR)


def test_a_mixture_of_laws_is_added_with_its_atoms() -> None:
    coin = MixtureLaw(((0.5, Point(1.0)), (0.25, Point(4.0)), (0.25, OfDelay(Exponential(mean=2.0)))))
    x = np.linspace(0.1, 30.0, 100)

    def one(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, -np.expm1(-np.maximum(x, 0.0) / 2), 0.0)

    two = 1 - (1 + x / 2) * np.exp(-x / 2)
    found = total([coin, OfDelay(Exponential(mean=2.0))])
    assert found.cdf(x) == pytest.approx(one(x - 1) / 2 + one(x - 4) / 4 + two / 4, abs=ERROR)


def test_sums_of_laws_and_sums_of_delays_are_the_same() -> None:
    parts = Pareto(shape=1.5, minimum=1.0), UNIT, Exponential(mean=1.0)
    x = np.geomspace(1.0, 1e12, 50)
    found: Law = total([OfDelay(part) for part in parts])
    assert found.survival(x) == pytest.approx(Sum(parts=parts).survival(x), rel=1e-12)
    assert found.survival(1e18) == pytest.approx(1e-27, rel=1e-3)


@pytest.mark.parametrize(("count", "mean"), [(40, 1e-3), (40, 0.1), (600, 0.1)])
def test_interpolated_observations_are_followed(tmp_path, count, mean) -> None:
    """Each stretch between neighbours is a uniform time."""
    values = np.sort(np.random.default_rng(2).exponential(0.3, count))
    np.save(tmp_path / "seen.npy", values)
    seen = Empirical(file=str(tmp_path / "seen.npy"), interpolation="linear")
    x = np.linspace(0.0, 2.0, 81)

    def below(y: np.ndarray) -> np.ndarray:
        """∫ of the exponential's cdf up to y."""
        y = np.maximum(y, 0.0)
        return y + mean * np.expm1(-y / mean)

    low, high = values[:-1], values[1:]
    expected = ((below(x[:, None] - low) - below(x[:, None] - high)) / (high - low)).mean(axis=1)
    assert total([seen, Exponential(mean=mean)]).cdf(x) == pytest.approx(expected, abs=ERROR)


@pytest.mark.parametrize("t", [1, 5, 19])
def test_the_cdf_of_a_sum_of_order_statistics_never_falls(t: int) -> None:
    each = [OfDelay(Exponential(mean=0.1), shift=0.01 * k) for k in range(20)]
    law = total([maximum(each), order_statistic(each, t), OfDelay(Exponential(mean=0.02))])
    x = np.concatenate([np.linspace(0.0, 20.0, 4001), np.geomspace(20.0, 1e6, 200)])
    assert np.diff(law.cdf(x)).min() >= -1e-12
    assert law.cdf(1e6) == pytest.approx(1.0, abs=1e-12)
