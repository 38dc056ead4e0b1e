"""A distribution on a grid, within its stated error of scipy's: any scale, both tails, jumps, integrals."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from vflsim.timing.delays import Constant, Delay, Exponential, LogNormal, Maximum, Mixture, Normal, Pareto, Sum, Uniform
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import shifted
from vflsim.timing.floats import first
from vflsim.timing.laws.grid import CDF_ERROR, Grid
from vflsim.timing.laws.law import Atoms, Law
from vflsim.timing.laws.order import order_statistic, skewness, tail_share

LAWS = {
    "exponential": (stats.expon(scale=1e-7), math.inf),
    "gamma with an infinite density": (stats.gamma(0.3), math.inf),
    "log-normal": (stats.lognorm(2.5, scale=1e6), math.inf),
    "Pareto": (stats.pareto(1.5), 1.5),
    "uniform": (stats.uniform(1, 2), math.inf),
    "narrow": (stats.norm(100, 1e-4), math.inf),
}
LEVELS = np.concatenate([[1e-9, 1e-6, 1e-4], np.linspace(0.001, 0.999, 501), [1 - 1e-4, 1 - 1e-6, 1 - 1e-9]])


def grid_of(law, index: float) -> Grid:
    start, end = law.support()
    return Grid.of(lambda x: (law.cdf(x), law.sf(x)), (max(start, 0.0), end), np.array([]), index)


@pytest.mark.parametrize(("law", "index"), LAWS.values(), ids=LAWS)
def test_cdf_both_tails_and_quantiles_are_within_the_stated_error(law, index) -> None:
    grid, x = grid_of(law, index), law.ppf(LEVELS)
    assert np.abs(grid.cdf(x) - law.cdf(x)).max() < 10 * CDF_ERROR
    assert grid.survival(x) == pytest.approx(law.sf(x), rel=1e-3)
    assert grid.cdf(x) == pytest.approx(law.cdf(x), rel=1e-3)
    assert grid.quantile(LEVELS) == pytest.approx(x, rel=1e-4)
    inner = LEVELS[5:-5]
    assert grid.density(law.ppf(inner)) == pytest.approx(law.pdf(law.ppf(inner)), rel=1e-2)
    assert np.all(np.diff(grid.cdf(np.sort(np.append(x, grid.points)))) >= 0)


@pytest.mark.parametrize(("law", "index"), LAWS.values(), ids=LAWS)
def test_moments_are_those_of_formulas(law, index) -> None:
    mean, variance = grid_of(law, index).moments
    assert mean == pytest.approx(law.mean(), rel=2e-5)
    assert variance == pytest.approx(law.var(), rel=1e-4)


@pytest.mark.parametrize("name", ["exponential", "gamma with an infinite density", "uniform", "narrow"])
def test_integrals_are_those_of_quadrature(name: str) -> None:
    law, index = LAWS[name]
    grid = grid_of(law, index)
    for level in (0.1, 0.9, 0.999):
        x, end = law.ppf([level, 1 - 1e-14])
        after = integrate.quad(law.sf, x, end, epsabs=0, epsrel=1e-9)[0]
        assert grid.integrals(np.array(x), upper=True) == pytest.approx(after, rel=5e-4)
        assert grid.integrals(np.array(x), upper=False) == pytest.approx(after + x - law.mean(), rel=5e-4)
        assert grid.beyond(x)[0] == pytest.approx(after, rel=5e-4)


@pytest.mark.parametrize("place", [1 / 3, 0.7182818])
def test_a_jump_that_nobody_tells_of_is_kept(place: float) -> None:
    def levels(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        below = x / 2 + np.where(x >= place, 0.5, 0.0)
        return below, 1 - below

    grid = Grid.of(levels, (0.0, 1.0), np.array([]), math.inf)
    assert grid.cdf(place * np.array([1 - 1e-9, 1 + 1e-9])) == pytest.approx([place / 2, place / 2 + 0.5], abs=1e-6)


def test_blocks_keep_the_mean_and_all_probability() -> None:
    grid = grid_of(stats.gamma(3), math.inf)
    edges, masses = grid.blocks
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert masses @ (edges[1:] + edges[:-1]) / 2 == pytest.approx(3.0, rel=1e-6)


def test_the_excess_of_a_law_counts_its_atoms() -> None:
    law = Mixture(weights=[1, 1], parts=[Constant(value=2.0), Exponential(mean=1.0)])
    x = np.array([0.0, 1.0, 3.0])
    expected = np.maximum(2 - x, 0) / 2 + np.exp(-x) / 2
    assert law.excess(x) == pytest.approx(expected, rel=1e-4)
    assert law.atoms() == Atoms.at(2.0).weighed(0.5)


# --- moments ----------------------------------------------------------------------------------------------------------


class ByCdf(Law):
    """Known by its cdf alone: rounding hides its tail."""

    def __init__(self, witness):
        self.witness = witness

    def cdf(self, x):
        return self.witness.cdf(x)


class BySurvival(ByCdf):
    """Known by its survival function, too."""

    def survival(self, x):
        return self.witness.sf(x)


class Steps(Law):
    """Jumps that nobody tells of: 1, 2, 3, … with the probabilities of a geometric law."""

    def cdf(self, x):
        return 1 - 0.8 ** np.floor(np.maximum(x, 0.0))


BY_SCIPY = {
    **{f"Pareto {a}": stats.pareto(a) for a in (1.5, 2.05, 2.2, 2.5, 3)},
    **{f"log-normal {s}": stats.lognorm(s) for s in (0.5, 1.5, 2.5)},
    "Weibull 0.3": stats.weibull_min(0.3),
    "Weibull 5": stats.weibull_min(5),
    "narrow": stats.norm(10, 1e-4),
    "bounded": stats.beta(0.3, 0.4),
    "tiny": stats.lognorm(1.5, scale=1e-6),
    "huge heavy": stats.pareto(2.2, scale=1e6),
}
OF_CDF = {"Pareto 2.05": 1e-2, "log-normal 2.5": 2e-2}  # what is hidden by 1 − cdf


@pytest.mark.parametrize("name", BY_SCIPY)
def test_a_survival_function_gives_both_moments_to_about_five_digits(name):
    mean, variance = map(float, BY_SCIPY[name].stats("mv"))
    assert BySurvival(BY_SCIPY[name]).moments == pytest.approx((mean, variance), rel=4e-5)


@pytest.mark.parametrize("name", BY_SCIPY)
def test_a_cdf_alone_gives_them_unless_rounding_hides_the_tail(name):
    mean, variance = map(float, BY_SCIPY[name].stats("mv"))
    of_cdf = ByCdf(BY_SCIPY[name]).moments
    assert of_cdf[0] == pytest.approx(mean, rel=4e-5)
    assert of_cdf[1] == pytest.approx(variance, rel=OF_CDF.get(name, 5e-4))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", [ByCdf, BySurvival])
@pytest.mark.parametrize(
    ("index", "finite"), [(0.8, 0), (1.0, 0), (1.1, 1), (1.5, 1), (1.99, 1), (2.0, 1), (2.01, 2), (2.5, 2)]
)
@pytest.mark.parametrize("law", [stats.pareto, stats.lomax], ids=["pareto", "lomax"])
def test_an_infinite_moment_is_told_from_a_large_one(kind, index, finite, law):
    assert list(map(math.isfinite, kind(law(index)).moments)) == [finite > 0, finite > 1]


@pytest.mark.parametrize(("t", "finite"), [(1, True), (2, True), (3, False)])
def test_the_variance_of_an_order_statistic_is_infinite_where_enough_tails_are_heavy(t, finite):
    laws = [OfDelay(Pareto(shape=1.5, minimum=1.0))] * 2 + [OfDelay(Exponential(mean=1.0))]
    assert math.isfinite(order_statistic(laws, t).variance()) is finite


def test_jumps_that_nobody_tells_of_are_found():
    assert Steps().moments == pytest.approx((5.0, 20.0), rel=2e-3)


def test_a_maximum_and_a_mixture_state_the_errors_of_their_means():
    parts = [Pareto(shape=2.2, minimum=0.1), Pareto(shape=2.5, minimum=0.1)]
    longest, (a, b) = Maximum(parts=parts), (2.2, 2.5)  # E max = E A + E B − E min, of index a + b
    mean = 0.1 * (a / (a - 1) + b / (b - 1) - (a + b) / (a + b - 1))
    assert abs(longest.expectation() - mean) <= longest.error() < 1e-4
    mixed = Mixture(weights=[1, 1], parts=[Exponential(mean=1.0), Maximum(parts=[Exponential(mean=1.0)] * 2)])
    assert abs(mixed.expectation() - 1.25) <= mixed.error() < 1e-4
    assert mixed.variance() == pytest.approx((2 + 3.5) / 2 - 1.25**2, rel=1e-5)
    assert Sum(parts=[longest, 1.0]).error() == longest.error()


ROOT = math.sqrt(math.pi)
STANDARD = {  # mean and variance of the t-th of n standard normal times (Jones 1948)
    "the first of two": (2, 1, -1 / ROOT, 1 - 1 / math.pi),
    "the middle of three": (3, 2, 0.0, 1 - math.sqrt(3) / math.pi),
    "the last of three": (3, 3, 1.5 / ROOT, 1 + (math.sqrt(3) / 2 - 9 / 4) / math.pi),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("ratio", [1e-2, 1e-4, 1e-6, 2.0**-13])
@pytest.mark.parametrize("mean", [100.0, 81.92, 1e-3])
@pytest.mark.parametrize(("n", "t", "first", "second"), STANDARD.values(), ids=STANDARD)
def test_moments_of_narrow_times_far_from_zero_do_not_cancel(n, t, first, second, mean, ratio):
    sd = ratio * mean
    law = order_statistic([Normal(mean=mean, sd=sd)] * n, t)
    assert law.expectation() - mean == pytest.approx(sd * first, abs=1e-5 * sd + 1e-14 * mean)
    assert law.variance() == pytest.approx(sd**2 * second, rel=1e-4)


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-6])
def test_a_narrow_time_among_wide_ones_is_seen(width):
    narrow, wide = Uniform(low=100, high=100 + width), Uniform(low=0, high=1000)
    mean = 0.1 * (100 + width / 2) + (1000**2 - (100 + width) ** 2) / 2000 + (width / 1000) * (100 + 2 * width / 3)
    assert order_statistic([narrow, wide], 2).expectation() == pytest.approx(mean, rel=1e-5)


RARE = Mixture(weights=(99, 1), parts=(Constant(value=0.02), Constant(value=100)))


@pytest.mark.parametrize(
    ("law", "known"),
    [
        (Exponential(mean=3.0), 2.0),
        (Uniform(low=1.0, high=4.0), 0.0),
        (LogNormal(median=1.0, sigma=1.5), float(stats.lognorm(1.5).stats("s"))),
        (Pareto(shape=4.0, minimum=1.0), float(stats.pareto(4).stats("s"))),
        (RARE, float(stats.bernoulli(0.01).stats("s"))),
        (Maximum(parts=[Exponential(mean=1.0)] * 2), 2 * (1 + 1 / 8) / 1.25**1.5),
        (Constant(value=2.0), 0.0),
    ],
)
def test_skewness_is_that_of_formulas_within_a_few_percent(law: Delay, known: float) -> None:
    assert skewness(law) == pytest.approx(known, rel=0.03, abs=0.01)


def test_an_infinite_third_moment_is_large_and_an_infinite_variance_infinite() -> None:
    assert skewness(Pareto(shape=2.2, minimum=1.0)) > 1000
    assert skewness(Pareto(shape=1.5, minimum=1.0)) == math.inf


@pytest.mark.parametrize("draws", [3, 10, 30, 1000])
def test_the_share_of_an_exponential_law_has_a_formula_whatever_its_mean(draws: int) -> None:
    over = math.log(draws) - 1  # ∫ (x − 1)² e^(−x) beyond the quantile a = ln draws: ((a − 1)² + 2 (a − 1) + 2) / draws
    known = (over * over + 2 * over + 2) / draws
    for mean in (1e-3, 5.0):
        assert tail_share(Exponential(mean=mean), draws) == pytest.approx(known, rel=1e-4)


@pytest.mark.sampled(2)
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
        (Normal(mean=1, sd=0.1), 1, False),
        (Constant(value=3), 1, False),
    ],
)
def test_over_half_of_the_variance_marks_the_laws_whose_means_are_far_from_normal(
    law: Delay, draws: int, worrying: bool
) -> None:
    assert (tail_share(law, draws) > 0.5) is worrying


# --- bisection --------------------------------------------------------------------------------------------------------


ENDS = [(-1e308, 1e308), (-5.0, -1e-300), (-0.0, 3.0), (-2.0, 0.0), (0.0, 1.7e308), (-1e-320, 1e-320)]


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_the_first_float_at_which_a_condition_holds_is_found(low: float, high: float) -> None:
    for wanted in (low, high, np.nextafter(low, np.inf), np.nextafter(high, -np.inf), low / 2 + high / 2):
        found = first(lambda x, wanted=wanted: x >= wanted, np.array([low]), np.array([high]))  # type: ignore[misc]
        assert found[0] == wanted


def test_a_law_that_begins_below_zero_has_quantiles() -> None:
    law = shifted(OfDelay(Exponential(mean=1.0)), -0.25)
    levels = np.array([0.0, 0.1, 0.5, 0.999])
    assert law.quantile(levels) == pytest.approx(-np.log1p(-levels) - 0.25, rel=1e-12)
    assert law.cdf(np.array([-0.3, 1.7e308])).tolist() == [0.0, 1.0]
