"""Moments by quadrature against scipy's closed forms, and their stated errors: heavy tails, jumps, any scale."""

import math

import numpy as np
import pytest
from scipy import stats

from vflsim.timing.delays import Exponential, Maximum, Mixture, Pareto
from vflsim.timing.law import Law


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


LAWS = {
    **{f"Pareto {a}": stats.pareto(a) for a in (1.5, 2.05, 2.2, 2.5, 3)},
    **{f"log-normal {s}": stats.lognorm(s) for s in (0.5, 1.5, 2.5)},
    "Weibull 0.3": stats.weibull_min(0.3),
    "Weibull 5": stats.weibull_min(5),
    "narrow": stats.norm(10, 1e-4),
    "bounded": stats.beta(0.3, 0.4),
    "tiny heavy": stats.pareto(2.2, scale=1e-6),
    "huge heavy": stats.pareto(2.2, scale=1e6),
    "tiny": stats.lognorm(1.5, scale=1e-6),
    "huge": stats.lognorm(1.5, scale=1e6),
}
OF_CDF = {"Pareto 2.05": 2e-4, "Pareto 2.2": 1e-5, "log-normal 2.5": 5e-5}  # what is hidden by 1 − cdf
INFINITE = {"Pareto 1.5"}


def agree(found, mean, variance, rel_mean, rel_variance):
    assert found.mean == pytest.approx(mean, rel=rel_mean)
    assert abs(found.mean - mean) <= found.error <= max(1e-3 * mean, 0)
    assert found.variance == pytest.approx(variance, rel=rel_variance)
    if math.isfinite(variance):
        assert abs(found.variance - variance) <= found.variance_error <= 2e-3 * variance
    else:
        assert found.variance_error == math.inf


@pytest.mark.parametrize("name", LAWS)
def test_a_survival_function_gives_both_moments_to_nine_digits(name):
    mean, variance = map(float, LAWS[name].stats("mv"))
    agree(BySurvival(LAWS[name])._moments, mean, variance, 1e-12, 1e-7 if "2.05" in name or name == "narrow" else 1e-11)


@pytest.mark.parametrize("name", LAWS)
def test_a_cdf_alone_gives_both_moments_within_their_errors(name):
    mean, variance = map(float, LAWS[name].stats("mv"))
    tolerance = 1e-5 if "heavy" in name else OF_CDF.get(name, 2e-6)
    agree(ByCdf(LAWS[name])._moments, mean, variance, 1e-8, tolerance)


@pytest.mark.parametrize("kind", [ByCdf, BySurvival])
@pytest.mark.parametrize(
    ("index", "finite"), [(0.8, 0), (1.0, 0), (1.1, 1), (1.5, 1), (1.99, 1), (2.0, 1), (2.01, 2), (2.5, 2)]
)
@pytest.mark.parametrize("law", [stats.pareto, stats.lomax], ids=["pareto", "lomax"])
def test_an_infinite_moment_is_told_from_a_large_one(kind, index, finite, law):
    found = kind(law(index))._moments
    assert [math.isfinite(found.mean), math.isfinite(found.variance)] == [finite > 0, finite > 1]


def test_a_variance_beyond_the_reach_of_differences_is_finite_if_the_tail_bends():
    law = stats.lognorm(3.5)  # its slope is 1.9 where rounding hides it: a power law would have no variance
    found = ByCdf(law)._moments
    assert abs(found.variance - law.var()) <= found.variance_error < 0.1 * law.var()


def test_jumps_that_nobody_tells_of_are_found():
    agree(Steps()._moments, 5.0, 20.0, 1e-10, 1e-9)


def test_a_mixture_of_scales_far_apart_has_the_moments_of_its_parts():
    parts = stats.lognorm(0.5, scale=1e-6), stats.pareto(2.5, scale=1e6)

    class Both(Law):
        def cdf(self, x):
            return 0.4 * parts[0].cdf(x) + 0.6 * parts[1].cdf(x)

        def survival(self, x):
            return 0.4 * parts[0].sf(x) + 0.6 * parts[1].sf(x)

    mean = 0.4 * parts[0].mean() + 0.6 * parts[1].mean()
    second = sum(w * (p.var() + p.mean() ** 2) for w, p in zip((0.4, 0.6), parts, strict=True))
    agree(Both()._moments, mean, second - mean**2, 1e-10, 1e-8)


def test_a_maximum_states_the_errors_of_its_moments():
    parts = [Pareto(shape=2.2, minimum=0.1), Pareto(shape=2.5, minimum=0.1)]
    longest = Maximum(parts=parts)
    a, b = 2.2, 2.5  # E max = E A + E B − E min, and so for squares; the minimum has index a + b
    mean = 0.1 * (a / (a - 1) + b / (b - 1) - (a + b) / (a + b - 1))
    second = 0.01 * (a / (a - 2) + b / (b - 2) - (a + b) / (a + b - 2))
    assert abs(longest.expectation() - mean) <= longest.error() < 1e-9
    assert abs(longest.variance() - (second - mean**2)) <= longest.variance_error() < 1e-9
    assert longest.error() > 0
    heavier = Maximum(parts=[Pareto(shape=1.5, minimum=0.1), Exponential(mean=1.0)])
    assert math.isinf(heavier.variance())
    assert math.isinf(heavier.variance_error())


def test_a_mixture_adds_up_the_errors_of_its_parts():
    mixed = Mixture(weights=[1, 1], parts=[Exponential(mean=1.0), Maximum(parts=[Exponential(mean=1.0)] * 2)])
    assert 0 < mixed.error() < 1e-9
    assert abs(mixed.variance() - ((2 + 3.5) / 2 - 1.25**2)) <= mixed.variance_error() < 1e-9
