"""Latent noise on whole numbers (Eq. 9, 10) against scipy's Laplace law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vflsim.codecs.round import release_epsilon, unchanged


def law(z: int, epsilon: float, most: int) -> np.ndarray:
    """The probability of every whole number within ±most that [z + Lap(1/ε)] becomes, saturated."""
    edges = stats.laplace(loc=z, scale=1 / epsilon).cdf(np.arange(-most, most) + 0.5)
    return np.diff(edges, prepend=0.0, append=1.0)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 7.5])
def test_noise_leaves_a_number_as_it_is_with_the_probability_of_equation_ten(epsilon: float) -> None:
    laplace = stats.laplace(scale=1 / epsilon)
    assert unchanged(epsilon) == pytest.approx(laplace.cdf(0.5) - laplace.cdf(-0.5), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.8])
@pytest.mark.parametrize(("z", "other"), [(0, 1), (3, -4), (-10, 10)])
def test_epsilon_bounds_the_ratio_of_the_laws_and_is_reached(epsilon: float, z: int, other: int) -> None:
    """The ends of the range tell most: all of a tail falls there."""
    ratio = np.abs(np.log(law(z, epsilon, 10) / law(other, epsilon, 10))).max()
    allowed = release_epsilon(epsilon, difference=abs(z - other))
    assert ratio <= allowed * (1 + 1e-9)
    if abs(z) < 10 and abs(other) < 10:
        assert ratio == pytest.approx(allowed)


def test_elements_differences_and_releases_multiply() -> None:
    """Independent elements: the log ratio of a row is the sum of theirs; so it is of releases."""
    one, other = law(0, 0.5, 5), law(2, 0.5, 5)
    rows = np.log(np.multiply.outer(one, one) / np.multiply.outer(other, other))
    assert np.abs(rows).max() == pytest.approx(release_epsilon(0.5, elements=2, difference=2))
    assert release_epsilon(0.5, 3, 254) == 0.5 * 3 * 254
