"""Order statistics of independent times: against scipy, enumeration and formulas."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from thorough import examples

from vflsim.analysis.rounds import used_probabilities
from vflsim.timing.delays import Exponential, LogNormal, Pareto, Uniform
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import OrderStatistic, counts, maximum, minimum, order_statistic

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def exponential(mean: float, shift: float = 0.0) -> Law:
    return OfDelay(Exponential(mean=mean), shift)


MIXED: list[Law] = [
    exponential(1.0),
    exponential(1.0),
    exponential(3.0, 0.5),
    OfDelay(Uniform(low=0.2, high=2.0)),
    OfDelay(LogNormal(median=1.0, sigma=0.7)),
]


@given(probabilities)
@settings(max_examples=examples(100), deadline=None)
def test_the_recursion_counts_what_enumeration_counts(p: list[float]) -> None:
    expected = np.zeros(len(p) + 1)
    for outcome in product((0, 1), repeat=len(p)):
        expected[sum(outcome)] += math.prod(q if hit else 1 - q for q, hit in zip(p, outcome, strict=True))
    found = counts([np.array(q) for q in p], len(p) + 1)
    assert found == pytest.approx(expected, abs=1e-14)
    assert found.sum() == pytest.approx(1.0)


@given(probabilities, st.integers(0, 9))
@settings(max_examples=examples(50), deadline=None)
def test_a_recursion_cut_short_gives_the_same_beginning(p: list[float], below: int) -> None:
    arrays = [np.array(q) for q in p]
    assert np.array_equal(counts(arrays, below)[: len(p) + 1], counts(arrays, len(p) + 1)[:below])


@pytest.mark.parametrize(("n", "t"), [(1, 1), (2, 1), (5, 3), (8, 8), (16, 9)])
def test_alike_uniform_times_are_beta(n: int, t: int) -> None:
    law = order_statistic([OfDelay(Uniform(low=1.0, high=3.0))] * n, t)
    beta = stats.beta(t, n + 1 - t, loc=1, scale=2)
    x = np.linspace(0.9, 3.1, 100)
    assert law.cdf(x) == pytest.approx(beta.cdf(x), abs=1e-13)
    assert law.survival(x) == pytest.approx(beta.sf(x), abs=1e-13)
    assert law.expectation() == pytest.approx(beta.mean(), rel=1e-5)
    assert law.variance() == pytest.approx(beta.var(), rel=1e-5)


@pytest.mark.parametrize("t", range(1, 9))
def test_alike_exponential_times_have_harmonic_means(t: int) -> None:
    law = order_statistic([exponential(2.0, 0.3)] * 8, t)
    assert law.expectation() == pytest.approx(0.3 + 2 * sum(1 / k for k in range(9 - t, 9)), rel=1e-5)
    assert law.variance() == pytest.approx(4 * sum(1 / k**2 for k in range(9 - t, 9)), rel=1e-5)


def test_the_longest_of_unlike_exponential_times_follows_inclusion_and_exclusion() -> None:
    rates = [1.0, 0.5, 0.25, 2.0]
    expected = 0.0
    for chosen in product((0, 1), repeat=4):
        if any(chosen):
            expected += (-1) ** (sum(chosen) + 1) / sum(r for r, c in zip(rates, chosen, strict=True) if c)
    law = maximum([exponential(1 / rate) for rate in rates])
    assert law.expectation() == pytest.approx(expected, rel=1e-5)
    assert minimum([exponential(1 / rate) for rate in rates]).expectation() == pytest.approx(1 / sum(rates), rel=1e-5)


def test_the_last_is_the_product_and_later_ones_are_larger() -> None:
    x = np.linspace(0.0, 20.0, 300)
    cdfs = [order_statistic(MIXED, t).cdf(x) for t in range(1, 6)]
    assert cdfs[-1] == pytest.approx(np.prod([law.cdf(x) for law in MIXED], axis=0), abs=1e-15)
    assert all(np.all(later <= earlier + 1e-15) for earlier, later in pairwise(cdfs))
    means = [order_statistic(MIXED, t).expectation() for t in range(1, 6)]
    assert means == sorted(means)
    assert sum(means) == pytest.approx(sum(law.expectation() for law in MIXED), rel=1e-5)


def test_cdf_and_survival_are_complements_with_small_ones_precise() -> None:
    law = OrderStatistic(((exponential(1.0), 3),), 3)
    assert float(law.survival(40.0)) == pytest.approx(3 * math.exp(-40), rel=1e-5)
    second = OrderStatistic(((exponential(1.0), 3),), 2)
    assert float(second.survival(30.0)) == pytest.approx(3 * math.exp(-60), rel=1e-5)


def test_the_support_is_that_of_the_t_th() -> None:
    laws = [OfDelay(Uniform(low=a, high=a + 1.0)) for a in (0.0, 5.0, 10.0)]
    assert [order_statistic(laws, t).support for t in (1, 2, 3)] == [(0.0, 1.0), (5.0, 6.0), (10.0, 11.0)]
    assert order_statistic([Point(3.0), Point(1.0), Point(2.0)], 2) == Point(2.0)


def test_a_heavy_tail_makes_the_longest_heavy() -> None:
    assert math.isinf(maximum([OfDelay(Pareto(shape=1.5, minimum=1.0)), exponential(1.0)]).variance())


@pytest.mark.parametrize("t", [0, 6])
def test_there_is_no_t_th_beyond_the_times(t: int) -> None:
    with pytest.raises(ValueError, match="allowed: 1 to 5"):
        order_statistic(MIXED, t)


def test_alike_clients_are_among_the_first_t_alike_often() -> None:
    assert used_probabilities([exponential(2.0)] * 8, 3) == pytest.approx([3 / 8] * 8, rel=1e-5)
    first = used_probabilities([exponential(1.0), exponential(4.0)], 1)
    assert first == pytest.approx([0.8, 0.2], rel=1e-5)
    assert sum(used_probabilities(MIXED, 2)) == pytest.approx(2.0, rel=1e-5)
