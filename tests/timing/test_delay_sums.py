"""Sums and maxima against closed forms of other people: scipy's laws, exact fractions, order statistics."""

import math
from collections import Counter
from itertools import product
from math import comb, factorial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from thorough import examples

from vflsim.timing.delays import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    Maximum,
    Mixture,
    Normal,
    Pareto,
    Sum,
    Uniform,
    Weibull,
)
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw, maximum, order_statistic

GRID = np.array([1e-3, 0.01, 0.1, 0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 30.0])
ERROR = 1e-5  # absolute, of every cdf that is convolved on a grid


def hypoexponential(means, x):
    """Partial fractions with 60 digits."""
    with mpmath.workdps(60):
        rates = [1 / mpmath.mpf(mean) for mean in means]
        survival = 0
        for i, rate in enumerate(rates):
            others = [other / (other - rate) for j, other in enumerate(rates) if j != i]
            survival += mpmath.exp(-rate * x) * mpmath.fprod(others)
        return float(1 - survival)


@pytest.mark.parametrize(
    "means",
    [[1, 2, 4], [1, 1.0001, 1.0002, 0.9999, 1.0003], [1e-6, 1.0000001e-6, 1, 1.0000001], [0.5, 0.55, 3, 3.1, 40]],
)
def test_exponentials_of_any_means(means):
    total = Sum(parts=[Exponential(mean=mean) for mean in means])
    np.testing.assert_allclose(total.cdf(GRID), [hypoexponential(means, x) for x in GRID], atol=ERROR)


def test_equal_exponentials_are_erlang():
    total = Sum(parts=[Exponential(mean=0.5)] * 7)
    np.testing.assert_allclose(total.cdf(GRID), stats.gamma(7, scale=0.5).cdf(GRID), rtol=1e-12)
    np.testing.assert_allclose(
        total.quantile([0.001, 0.5, 0.9999]), stats.gamma(7, scale=0.5).ppf([0.001, 0.5, 0.9999])
    )


@pytest.mark.parametrize(
    ("parts", "witness"),
    [
        ([Gamma(shape=0.3, scale=2), Gamma(shape=1.9, scale=2)], stats.gamma(2.2, scale=2)),
        ([Gamma(shape=0.1, scale=1), Exponential(mean=1)], stats.gamma(1.1)),
        ([Gamma(shape=2, scale=1)] * 4, stats.gamma(8)),
        ([Normal(mean=10, sd=0.5), Exponential(mean=2)], stats.exponnorm(4, loc=10, scale=0.5)),
        ([Normal(mean=5, sd=0.001), Exponential(mean=2)], stats.exponnorm(2000, loc=5, scale=0.001)),
        ([Normal(mean=3, sd=0.03), 1, Normal(mean=5, sd=0.04)], stats.norm(9, 0.05)),
        ([Uniform(low=0, high=1), Uniform(low=0, high=1)], stats.triang(0.5, scale=2)),
        ([Uniform(low=0, high=1), Uniform(low=0, high=3)], stats.trapezoid(0.25, 0.75, scale=4)),
    ],
)
def test_sums_that_have_a_name(parts, witness):
    total = Sum(parts=parts)
    x = np.concatenate([GRID, witness.ppf(np.linspace(0.001, 0.999, 21))])
    np.testing.assert_allclose(total.cdf(x), witness.cdf(x), atol=ERROR)
    np.testing.assert_allclose(total.density(x), witness.pdf(x), atol=1e-3 * witness.pdf(witness.mean()), rtol=1e-2)
    q = np.array([0.001, 0.1, 0.5, 0.99])
    np.testing.assert_allclose(total.quantile(q), witness.ppf(q), rtol=1e-4)


def test_a_heavy_tail_stays_that_of_its_heaviest_part():
    total = Sum(parts=[Pareto(shape=1.2, minimum=0.1), Exponential(mean=0.5)])
    far = np.array([1e6, 1e12, 1e20, 1e40])
    np.testing.assert_allclose(total.survival(far), Pareto(shape=1.2, minimum=0.1).survival(far), rtol=1e-4)


def test_discrete_sums_are_exact():
    coin, die = Mixture(weights=[1, 1], parts=[0, 10]), Mixture(weights=[1] * 6, parts=[1, 2, 3, 4, 5, 6])
    total = Sum(parts=[die, die, coin])
    ways = Counter(first + second + side for first in range(1, 7) for second in range(1, 7) for side in (0, 10))
    values, masses = total.atoms()
    assert values.tolist() == sorted(ways)
    np.testing.assert_allclose(masses, [ways[value] / 72 for value in sorted(ways)], rtol=1e-12)
    for value in sorted(ways):
        upto = sum(ways[less] for less in ways if less <= value) / 72
        assert total.cdf(value) == pytest.approx(upto, rel=1e-12)
        assert total.cdf(np.nextafter(value, 0)) == pytest.approx(upto - ways[value] / 72, abs=1e-12)
        assert total.quantile(upto - 1e-9) == value


def test_observed_values_and_a_smooth_part_mix_exactly(tmp_path):
    rng = np.random.default_rng(5)
    seen = rng.exponential(1.0, 300)
    np.save(tmp_path / "seen.npy", seen)
    for smooth in (Exponential(mean=0.7), Weibull(shape=0.8, mean=1)):
        total = Sum(parts=[Empirical(file=str(tmp_path / "seen.npy")), smooth])
        expected = [smooth.cdf(x - seen).mean() for x in GRID]
        np.testing.assert_allclose(total.cdf(GRID), expected, atol=ERROR)


MEAN, SD = 0.1, 0.01


def uniform_and_normal(low, high, x):
    """The cdf of a uniform and an independent normal time: the mean of Φ over the uniform's range."""
    law = stats.norm(MEAN, SD)
    whole = [(x - end - MEAN) * law.cdf(x - end) + SD**2 * law.pdf(x - end) for end in (low, high)]
    return (whole[0] - whole[1]) / (high - low)


@pytest.mark.parametrize("nested", [False, True])
def test_interpolated_observations_and_a_narrow_part_are_followed_to_the_end(nested, tmp_path):
    np.save(tmp_path / "few.npy", [0.0, 0.0, 0.2, 1.0])
    few = Empirical(file=str(tmp_path / "few.npy"), interpolation="linear")
    total = Sum(parts=[Maximum(parts=[few]) if nested else few, Normal(mean=MEAN, sd=SD)])
    x = np.linspace(0.05, 3.0, 400)
    parts = stats.norm(MEAN, SD).cdf(x), uniform_and_normal(0.0, 0.2, x), uniform_and_normal(0.2, 1.0, x)
    np.testing.assert_allclose(total.cdf(x), sum(parts) / 3, atol=ERROR)


def test_the_maximum_of_exponentials_has_the_mean_of_renyi():
    many = Maximum(parts=[Exponential(mean=2)] * 10)
    assert many.expectation() == pytest.approx(2 * sum(1 / k for k in range(1, 11)), rel=1e-5)
    assert many.variance() == pytest.approx(4 * sum(1 / k**2 for k in range(1, 11)), rel=1e-5)


@pytest.mark.parametrize(
    ("parts", "mean", "variance"),
    [
        ([Uniform(low=0, high=1)] * 3, 3 / 4, 3 / 80),
        ([1, Exponential(mean=1)], 1 + math.exp(-1), 2 * math.exp(-1) - math.exp(-2)),
        ([2, 3, 0.5], 3, 0),
        ([Pareto(shape=1.05, minimum=1)], 21, math.inf),
        ([Pareto(shape=1.5, minimum=1)] * 2, 4.5, math.inf),
        ([Pareto(shape=2.1, minimum=1), 0.5], 2.1 / 1.1, 2.1 / 1.1**2 / 0.1),
        ([Normal(mean=100, sd=0.01)] * 2, 100 + 0.01 / math.sqrt(math.pi), 1e-4 * (1 - 1 / math.pi)),
        ([Gamma(shape=0.1, scale=1)], 0.1, 0.1),
        ([LogNormal(median=1, sigma=3)], math.exp(4.5), math.exp(18) - math.exp(9)),
        ([Sum(parts=[Pareto(shape=1.2, minimum=1), Exponential(mean=1)])], 7, math.inf),
    ],
)
def test_moments_of_maxima(parts, mean, variance):
    longest = Maximum(parts=parts)
    assert longest.expectation() == pytest.approx(mean, rel=1e-5)
    assert longest.variance() == pytest.approx(variance, rel=5e-5, abs=1e-12)


positive = st.floats(0.01, 100)
simple = st.one_of(
    st.builds(lambda v: Constant(value=v), positive),
    st.builds(lambda m: Exponential(mean=m), positive),
    st.builds(lambda a, b: Uniform(low=a, high=a + b), positive, positive),
    st.builds(lambda k, m: Gamma(shape=k, mean=m), st.floats(0.2, 20), positive),
    st.builds(lambda k, m: Pareto(shape=k, minimum=m), st.floats(1.1, 6), positive),
    st.builds(lambda m, s: LogNormal(median=m, sigma=s), positive, st.floats(0.05, 2)),
)
composite = st.one_of(
    st.builds(lambda p: Sum(parts=p), st.lists(simple, min_size=1, max_size=3)),
    st.builds(lambda p: Maximum(parts=p), st.lists(simple, min_size=1, max_size=3)),
    st.builds(
        lambda p: Mixture(weights=[1 + k for k in range(len(p))], parts=p), st.lists(simple, min_size=1, max_size=3)
    ),
)


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(composite)
def test_any_composition_has_a_proper_distribution(delay):
    q = np.array([0.0, 1e-6, 0.01, 0.3, 0.5, 0.77, 0.999, 1 - 1e-6])
    x = delay.quantile(q)
    assert np.all(np.isfinite(x))
    assert np.all(np.diff(x) >= 0)
    assert np.all(delay.cdf(x) >= q - 1e-12)
    assert np.all((delay.cdf(x * (1 - 1e-7)) <= q + 1e-9) | (x <= delay.support[0]))
    u = np.random.default_rng(0).random((20_000, delay.uniforms))
    samples = np.sort(delay.sample(u[:, 0] if delay.uniforms == 1 else u))
    levels = np.arange(1, len(samples) + 1) / len(samples)
    ends = np.append(samples[1:] > samples[:-1], True)
    assert np.abs(levels - delay.cdf(samples))[ends].max() < 2.5 / math.sqrt(len(samples))


# --- sums -------------------------------------------------------------------------------------------------------------


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
