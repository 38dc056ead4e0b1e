"""ε and noise multipliers against the analytic Gaussian mechanism, and against the library's general accountants."""

import itertools
import math
import sys
from subprocess import run

import dp_accounting
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from vflsim.learning.privacy.accounting import EPSILONS, MULTIPLIERS, accountant, epsilon_of, noise_multiplier_for

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
