"""Means and variances of narrow times far from 0, against closed forms, and the errors that are stated with them."""

import math

import pytest

from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import Maximum, Normal, Sum, Uniform
from vflsim.timing.order import order_statistic

ROOT = math.sqrt(math.pi)
STANDARD = {  # mean and variance of the t-th of n standard normal times (Jones 1948)
    "the first of two": (2, 1, -1 / ROOT, 1 - 1 / math.pi),
    "the last of two": (2, 2, 1 / ROOT, 1 - 1 / math.pi),
    "the middle of three": (3, 2, 0.0, 1 - math.sqrt(3) / math.pi),
    "the last of three": (3, 3, 1.5 / ROOT, 1 + (math.sqrt(3) / 2 - 9 / 4) / math.pi),
}
PLACES = [100.0, 81.92, 1.0, 1e-3]
RATIOS = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 2.0**-13]  # with the last, doubling distances of sd meet the mean


def true_error(found, mean, more):
    """The error against mean + more, which no float has to hold."""
    return abs(math.fsum([found, -mean, -more]))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("mean", PLACES)
@pytest.mark.parametrize(("n", "t", "first", "second"), STANDARD.values(), ids=STANDARD)
def test_moments_of_narrow_times_are_precise_and_their_errors_bound(n, t, first, second, mean, ratio):
    sd = ratio * mean
    law = order_statistic([Normal(mean=mean, sd=sd)] * n, t)
    assert true_error(law.expectation(), mean, sd * first) <= law.error() <= 1e-14 * mean + 1e-9 * sd
    assert law.variance() == pytest.approx(sd**2 * second, rel=1e-9)
    assert abs(law.variance() - sd**2 * second) <= law.variance_error() <= 1e-8 * sd**2


@pytest.mark.parametrize("shift", [0.0, 3.0, 1e4])
def test_a_constant_before_narrow_times_leaves_their_variance(shift):
    law = order_statistic([OfDelay(Normal(mean=100, sd=1e-3), shift)] * 2, 2)
    assert true_error(law.expectation(), 100 + shift, 1e-3 / ROOT) <= law.error() <= 1e-10
    assert law.variance() == pytest.approx(1e-6 * (1 - 1 / math.pi), rel=1e-8)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("mean", PLACES)
def test_a_maximum_states_the_error_of_its_mean(mean, ratio):
    sd = ratio * mean
    longest = Maximum(parts=[Normal(mean=mean, sd=sd)] * 2)
    assert true_error(longest.expectation(), mean, sd / ROOT) <= longest.error() <= 1e-14 * mean + 1e-9 * sd
    assert longest.variance() == pytest.approx(sd**2 * (1 - 1 / math.pi), rel=1e-9)
    assert Sum(parts=[longest, 1.0]).error() == longest.error()


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-6])
def test_a_narrow_time_among_wide_ones_is_seen(width):
    narrow, wide = Uniform(low=100, high=100 + width), Uniform(low=0, high=1000)
    law = order_statistic([narrow, wide], 2)
    # Of the larger of the two: the wide one from 100 + width on, else about the narrow one.
    mean = 0.1 * (100 + width / 2) + (1000**2 - (100 + width) ** 2) / 2000 + (width / 1000) * (100 + 2 * width / 3)
    assert abs(law.expectation() - mean) <= law.error() + 1e-12 <= 1e-8
