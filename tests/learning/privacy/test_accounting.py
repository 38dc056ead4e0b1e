"""ε and noise multipliers against the analytic Gaussian mechanism, and against the library's general accountants."""

import itertools
import math
import sys
from itertools import pairwise
from subprocess import run

import dp_accounting
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import comb, log_ndtr, ndtr

from vflsim.learning.privacy.accounting import (
    EPSILONS,
    MULTIPLIERS,
    ORDERS,
    Released,
    accountant,
    epsilon_of,
    least,
    noise_multiplier_for,
    sampled_epsilon_of,
    sampled_mu_of,
    sampled_noise_multiplier_for,
)

CASES = list(itertools.product((0.3, 1.0, 5.0, 40.0), (1, 3, 250), (1e-9, 1e-5, 1e-2)))


def delta_at(epsilon: float, mu: float) -> float:
    """δ(ε) of a Gaussian of sensitivity μ and unit noise: Balle and Wang 2018, Thm. 8, written down anew."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def epsilon_at(delta: float, mu: float) -> float:
    if delta_at(0, mu) <= delta:
        return 0.0
    return brentq(lambda epsilon: delta_at(epsilon, mu) - delta, 0, mu * mu / 2 + 60 * mu, xtol=1e-13)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("multiplier", "releases", "delta"), CASES)
def test_epsilon_is_that_of_one_gaussian_as_far_apart_as_all_releases_together(
    multiplier: float, releases: int, delta: float
) -> None:
    expected = epsilon_at(delta, math.sqrt(releases) / multiplier)
    assert epsilon_of(multiplier, delta, releases) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("releases", [1, 20, 3000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 80.0])
def test_the_multiplier_spends_delta_exactly_on_the_epsilon_asked_for(
    epsilon: float, releases: int, delta: float
) -> None:
    multiplier = noise_multiplier_for(epsilon, delta, releases)
    assert delta_at(epsilon, math.sqrt(releases) / multiplier) == pytest.approx(delta, rel=1e-6)
    assert epsilon_of(multiplier, delta, releases) == pytest.approx(epsilon, rel=1e-9)
    assert delta_at(epsilon, math.sqrt(releases) / (0.99 * multiplier)) > delta  # less noise would not do


@pytest.mark.parametrize(("multiplier", "releases"), [(1.0, 1), (1.0, 10), (8.0, 64)])
def test_a_numeric_privacy_loss_distribution_agrees_and_a_renyi_accountant_only_bounds(
    multiplier: float, releases: int
) -> None:
    event, found = dp_accounting.GaussianDpEvent(multiplier), epsilon_of(multiplier, 1e-5, releases)
    numeric = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3).compose(event, releases)
    renyi = dp_accounting.rdp.RdpAccountant().compose(event, releases)
    assert 0 <= numeric.get_epsilon(1e-5) - found < 1e-3  # it rounds losses up, by less than an interval
    assert found < renyi.get_epsilon(1e-5) < 1.2 * found


def test_more_releases_cost_more_and_more_noise_costs_less() -> None:
    spent = [epsilon_of(2.0, 1e-5, releases) for releases in (0, 1, 2, 10, 1000)]
    assert spent[0] == 0
    assert spent == sorted(set(spent))
    assert epsilon_of(4.0, 1e-5, 4) == pytest.approx(epsilon_of(2.0, 1e-5, 1))


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.999])
def test_the_ends_of_what_can_be_asked_for_have_finite_answers(delta: float) -> None:
    for multiplier, releases in itertools.product(MULTIPLIERS, (1, 10**9)):
        assert 0 <= epsilon_of(multiplier, delta, releases) < math.inf
    for epsilon in EPSILONS:
        assert epsilon_of(noise_multiplier_for(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: epsilon_of(0.0, 1e-5), "noise_multiplier 0 is out of range; allowed: a number above 0"),
        (lambda: epsilon_of(math.nan, 1e-5), "noise_multiplier nan"),
        (lambda: epsilon_of(1.0, 0.0), "delta 0 is out of range; allowed: above 0 and below 1"),
        (lambda: epsilon_of(1.0, 1.0), "delta 1 is out of range"),
        (lambda: epsilon_of(1.0, 1e-5, -1), "-1 releases"),
        (lambda: noise_multiplier_for(-5.0, 1e-5), "epsilon -5 is out of range"),
        (lambda: noise_multiplier_for(5.0, 1e-5, 0), "0 releases need no noise"),
    ],
)
def test_what_is_out_of_range_is_refused(call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_the_accountant_is_named_with_its_version() -> None:
    assert accountant().startswith("dp-accounting 0.")


@pytest.mark.slow
def test_the_library_is_loaded_by_the_first_question_and_not_before() -> None:
    code = (
        "import sys, vflsim.learning.learners.releases; from vflsim.learning.privacy.accounting import epsilon_of; "
        "print('dp_accounting' in sys.modules); epsilon_of(1.0, 1e-5); print('dp_accounting' in sys.modules)"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


DELTA = 1e-5


def batches(rate: float, number: int, times: int = 1) -> Released:
    return Released(number * times, ((rate, times, number),))


def accounted(size: int, rows: int, noise_multiplier: float, count: int, orders: object = None) -> RdpAccountant:
    """dp-accounting by itself, with its own orders."""
    event = SampledWithoutReplacementDpEvent(rows, size, GaussianDpEvent(noise_multiplier))
    return RdpAccountant(orders, NeighboringRelation.REPLACE_ONE).compose(event, count)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("size", "rows", "noise_multiplier", "count"),
    [(1024, 54000, 2.0, 530), (20, 90, 5.0, 12), (256, 60000, 1.0, 2000)],
)
def test_epsilon_is_that_of_dp_accounting(size: int, rows: int, noise_multiplier: float, count: int) -> None:
    found = sampled_epsilon_of(noise_multiplier, DELTA, batches(size / rows, count))
    same = accounted(size, rows, noise_multiplier, count, ORDERS).get_epsilon(DELTA)
    assert found == pytest.approx(same, rel=1e-12)


def test_whole_orders_cost_next_to_nothing() -> None:
    found = sampled_epsilon_of(2.0, DELTA, batches(1024 / 54000, 530))
    assert accounted(1024, 54000, 2.0, 530).get_epsilon(DELTA) <= found * (1 + 1e-12)
    assert found == pytest.approx(accounted(1024, 54000, 2.0, 530).get_epsilon(DELTA), rel=1e-2)


def test_epsilon_is_at_most_that_of_the_theorem_in_the_paper() -> None:
    """VIM Eq. 11 written anew, for a Gaussian with ε(α) = α/(2z²) and ε(∞) = ∞, converted by Balle et al. 2020."""
    z, rate, count = 3.0, 0.02, 400

    def theorem(alpha: int) -> float:
        two = math.exp(2 / (2 * z**2))
        terms = rate**2 * comb(alpha, 2) * min(4 * (two - 1), 2 * two)
        for j in range(3, alpha + 1):
            terms += rate**j * comb(alpha, j) * math.exp((j - 1) * j / (2 * z**2)) * 2
        return math.log1p(terms) / (alpha - 1)

    paper = min(
        count * theorem(alpha) + math.log((alpha - 1) / alpha) - (math.log(DELTA) + math.log(alpha)) / (alpha - 1)
        for alpha in range(2, 64)
    )
    found = sampled_epsilon_of(z, DELTA, batches(rate, count))
    assert 0.5 * paper < found <= paper


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.999, 1.0])
def test_sampling_never_costs_more_than_no_sampling(rate: float) -> None:
    whole = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE).compose(GaussianDpEvent(5.0), 50)
    found = sampled_epsilon_of(5.0, DELTA, batches(rate, 50))
    assert found <= whole.get_epsilon(DELTA) * (1 + 1e-12)
    if rate > 0.8:  # where the bound for samples is the larger one
        assert found == pytest.approx(whole.get_epsilon(DELTA))


def test_all_rows_are_bounded_by_the_closed_form_from_below() -> None:
    for noise_multiplier in (0.5, 2.0, 10.0):
        exact = epsilon_of(noise_multiplier, DELTA, 20)
        bound = sampled_epsilon_of(noise_multiplier, DELTA, batches(1.0, 20))
        assert exact < bound < 1.3 * exact


@pytest.mark.slow
@pytest.mark.usefixtures("few_orders")
def test_epsilon_grows_with_rate_number_and_repetition_and_falls_with_noise_and_delta() -> None:
    def spent(z: float = 2.0, delta: float = DELTA, **what: float) -> float:
        return sampled_epsilon_of(z, delta, batches(**{"rate": 0.1, "number": 50, **what}))  # type: ignore[arg-type]

    for growing in (
        [spent(rate=rate) for rate in (0.01, 0.05, 0.2, 0.4)],
        [spent(number=number) for number in (0, 1, 10, 100)],
        [spent(times=times) for times in (1, 2, 5)],
        [spent(z=z) for z in (20.0, 5.0, 2.0, 0.7)],
        [spent(delta=delta) for delta in (1e-2, 1e-5, 1e-9)],
    ):
        assert all(less < more for less, more in pairwise(growing)), growing
    assert sampled_epsilon_of(2.0, DELTA, Released()) == 0


def test_a_batch_released_again_is_no_new_sample() -> None:
    """Both releases of one batch are one Gaussian with less noise, sampled once."""
    event = SampledWithoutReplacementDpEvent(100, 10, SelfComposedDpEvent(GaussianDpEvent(3.0), 2))
    accountant = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE).compose(event, 40)
    twice = sampled_epsilon_of(3.0, DELTA, batches(0.1, 40, times=2))
    assert twice == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-12)
    assert twice > sampled_epsilon_of(3.0, DELTA, batches(0.1, 80))
    mixed = Released(0, ((0.1, 1, 30), (0.1, 2, 10)))
    assert sampled_epsilon_of(3.0, DELTA, batches(0.1, 40)) < sampled_epsilon_of(3.0, DELTA, mixed) < twice
    assert mixed.batches == 50


@pytest.mark.slow
@pytest.mark.usefixtures("few_orders")
@pytest.mark.parametrize(("epsilon", "rate", "number"), [(1.0, 0.05, 100), (8.0, 0.3, 20), (0.3, 1.0, 5)])
def test_calibrated_noise_meets_its_epsilon_and_little_less_does_not(epsilon: float, rate: float, number: int) -> None:
    z = sampled_noise_multiplier_for(epsilon, DELTA, rate, number)
    assert sampled_epsilon_of(z, DELTA, batches(rate, number)) <= epsilon
    assert sampled_epsilon_of(z * (1 - 1e-6), DELTA, batches(rate, number)) > epsilon * (1 - 1e-9)
    assert sampled_epsilon_of(z, DELTA, batches(rate, number)) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("start", [1e-9, 1.0, 2.0, 1e9])
def test_the_least_cost_is_found_from_anywhere(start: float) -> None:
    assert least(lambda x: 4 / x**2, 1.0, start) == pytest.approx(2, rel=1e-8)
    assert 4 / least(lambda x: 4 / x**2, 1.0, start) ** 2 <= 1


def test_mu_in_the_limit_is_that_of_weakly_informative_batches_and_of_whole_ones() -> None:
    """VAFL Eq. 15: μ = rate √K / z for much noise; √K / z without sampling, which is exact."""
    for z, close in ((10.0, 0.1), (100.0, 1e-2), (1e4, 1e-4), (1e7, 1e-6)):
        assert sampled_mu_of(z, batches(0.02, 530)) == pytest.approx(0.02 * math.sqrt(530) / z, rel=close)
    assert sampled_mu_of(3.0, batches(1.0, 16)) == pytest.approx(4 / 3)
    assert sampled_mu_of(1.0, batches(0.02, 530)) > 0.02 * math.sqrt(530)


def test_mu_in_the_limit_agrees_with_the_mean_privacy_loss_of_many_small_batches() -> None:
    """The variance of the likelihood ratio of sub-sampled Gaussians, by quadrature.

    The limit theorem of Dong, Roth and Su (2019) is about min(f, f⁻¹)**, whose χ² this is.
    """
    z = 1.3
    x = np.linspace(-14, 16, 600_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    ratio = np.exp(x / z - 1 / (2 * z**2))
    upper = x > 1 / (2 * z)  # where the ratio exceeds 1: the parts of (f, f⁻¹) that their minimum keeps
    chi = 2 * np.trapezoid(np.where(upper, (ratio - 1) ** 2 * density, 0), x)
    assert sampled_mu_of(z, Released(0, ((0.01, 1, 1),))) / 0.01 == pytest.approx(math.sqrt(chi), rel=1e-3)
