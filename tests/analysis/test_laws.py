"""Laws known by their cdf: moments and sums on grids, quantiles by bisection, against formulas and scipy."""

import math
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from thorough import examples

from vflsim.analysis.rounds import used_probabilities
from vflsim.timing.delays import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    Mixture,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
)
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw, OrderStatistic, counts, maximum, minimum, mixture, order_statistic

SMOOTH = {
    "exponential": Exponential(mean=2.0),
    "tiny": Exponential(mean=1e-7),
    "huge": Exponential(mean=1e9),
    "shifted": ShiftedExponential(shift=3.0, mean=0.01),
    "uniform": Uniform(low=1.0, high=3.0),
    "lognormal": LogNormal(median=1.0, sigma=1.5),
    "gamma": Gamma(shape=0.4, mean=2.0),
    "weibull": Weibull(shape=0.7, scale=2.0),
    "hyper": HyperExponential(probabilities=[0.9, 0.1], means=[0.1, 20.0]),
}


def test_a_sum_with_an_infinite_variance_has_a_cdf() -> None:
    parts = Pareto(shape=1.5, minimum=1.0), Uniform(low=0.0, high=1.0)
    law = total([OfDelay(part) for part in (*parts, Exponential(mean=1.0))])
    rng = np.random.default_rng(3)
    drawn = parts[0].sample(rng.random(200_000)) + parts[1].sample(rng.random(200_000)) + rng.exponential(size=200_000)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3  # the level of a wrong alarm
    assert np.all(np.isfinite(law.quantile([0.5, 0.999])))


@pytest.mark.parametrize("name", SMOOTH)
def test_bisection_finds_the_quantiles_that_the_delay_knows(name: str) -> None:
    law = OfDelay(SMOOTH[name], 0.25, 3.0)
    levels = np.array([0.0, 1e-5, 0.1, 0.5, 0.9, 0.99999])
    assert Law.inverse_cdf(law, levels) == pytest.approx(law.quantile(levels), rel=1e-11)


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 5)), min_size=1, max_size=5), st.floats(0, 1))
@settings(max_examples=examples(50), deadline=None)
def test_a_quantile_is_the_least_time_with_enough_probability_even_at_atoms(
    atoms: list[tuple[float, float]], q: float
) -> None:
    weight = sum(w for w, _ in atoms)
    law = mixture((w / weight, Point(x)) for w, x in atoms)
    values = sorted({x for _, x in atoms})
    expected = next((x for x in values if float(law.cdf(x)) >= q), values[-1])
    assert float(law.quantile(q)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_quantiles_are_refused_outside_of_0_to_1() -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        MixtureLaw(((1.0, Point(1.0)),)).quantile(1.5)


def test_equal_laws_are_one_law() -> None:
    assert OfDelay(Exponential(mean=2.0), 1.0) == OfDelay(Exponential(mean=2.0), 1.0)
    assert mixture([(0.3, Point(1.0)), (0.7, Point(1.0))]) == Point(1.0)


def test_a_mixture_has_the_moments_of_its_parts() -> None:
    law = mixture([(0.25, Point(1.0)), (0.75, OfDelay(Exponential(mean=2.0), 3.0))])
    assert law.expectation() == pytest.approx(0.25 + 0.75 * 5)
    assert law.variance() == pytest.approx(0.25 * 1 + 0.75 * (4 + 25) - law.expectation() ** 2)
    assert law.moments[0] == pytest.approx(law.expectation(), rel=1e-5)


# --- sums -----------------------------------------------------------------------------------------------------------


def test_constants_are_added_exactly() -> None:
    assert total([Point(0.1), Point(0.2)]) == Point(0.1 + 0.2)
    assert total([Point(0.5), OfDelay(Exponential(mean=2.0), 0.25)]) == OfDelay(Exponential(mean=2.0), 0.75)
    assert shifted(total([Point(0.5), OfDelay(Constant(value=1.0), 0.0, 2.0)]), 1.0).expectation() == 3.5


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_sums_do_not_depend_on_the_order_of_their_terms(scale: float) -> None:
    parts = [OfDelay(SMOOTH[name], 0.0, scale) for name in ("exponential", "uniform", "lognormal")]
    assert total(parts) == total(reversed(parts))


@pytest.mark.parametrize("scale", [20.217562752, 0.3, 7.1, 1e-9])
@pytest.mark.parametrize("shift", [0.0, 0.07, 3.3])
def test_quantiles_of_scaled_atoms_have_their_probability(scale: float, shift: float) -> None:
    twenty = Mixture(weights=(1,) * 20, parts=tuple(Constant(value=k / 20) for k in range(20)))
    law = OfDelay(twenty, shift, scale)
    levels = np.linspace(0.02, 0.98, 25)
    x = law.quantile(levels)
    assert np.all(law.cdf(x) >= levels - 1e-9)


def test_very_many_sums_of_observed_values_are_grouped(tmp_path: Path) -> None:
    observed = np.random.default_rng(3).lognormal(-3.0, 0.5, 300)
    np.save(tmp_path / "observed.npy", observed)
    each = Empirical(file=str(tmp_path / "observed.npy"))
    law = total([OfDelay(each), OfDelay(Exponential(mean=0.1)), OfDelay(each)])
    sums = np.add.outer(observed, observed).ravel()
    x = np.linspace(0.05, 0.8, 40)
    expected = np.array([np.where(sums < at, -np.expm1(-(at - sums) / 0.1), 0.0).mean() for at in x])
    assert np.abs(law.cdf(x) - expected).max() < 1e-4
    assert law.expectation() == pytest.approx(2 * observed.mean() + 0.1, rel=1e-12)


def test_grouped_values_and_a_long_tail_keep_the_mean_of_the_longest(tmp_path: Path) -> None:
    observed, draws = np.random.default_rng(0).exponential(0.3, 30), 200_000
    np.save(tmp_path / "observed.npy", observed)
    values = OfDelay(Empirical(file=str(tmp_path / "observed.npy")))
    upload = OfDelay(HyperExponential(probabilities=(0.8, 0.2), means=(0.05, 1.0)))
    laws = total([values, values, upload, values, values]), total([upload, upload, upload, values, values])
    generator = np.random.default_rng(1)
    tails = np.where(generator.random((4, draws)) < 0.8, 0.05, 1.0) * generator.exponential(size=(4, draws))
    drawn = generator.choice(observed, (6, draws))
    longest = np.maximum(drawn[:4].sum(axis=0) + tails[0], drawn[4:].sum(axis=0) + tails[1:].sum(axis=0))
    assert maximum(laws).expectation() == pytest.approx(longest.mean(), abs=4 * longest.std() / draws**0.5)


def test_the_longest_of_shifted_atoms_is_its_own_highest_quantile() -> None:
    values = np.random.default_rng(0).exponential(0.3, 30)
    observed = Mixture(weights=(1,) * 30, parts=tuple(Constant(value=float(value)) for value in values))
    for shift in np.linspace(0.1, 0.3, 50):
        law = OfDelay(observed, float(shift))
        assert float(maximum([law, law, law]).cdf(maximum([law, law, law]).quantile(0.98))) == 1.0


# --- order statistics -------------------------------------------------------------------------------------------------


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
