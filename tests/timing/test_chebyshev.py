"""Cdfs as Chebyshev series on panels."""

import numpy as np
import pytest

from vflsim.timing.chebyshev import ChebyshevTable


@pytest.mark.parametrize("place", [1 / 3, 0.7182818])
def test_a_jump_that_nobody_tells_of_is_kept_within_the_narrowest_panel(place: float) -> None:
    table = ChebyshevTable.of(lambda x: np.where(x >= place, 1.0, x / 2), (0.0, 1.0), np.array([]), 1.0, 1e-12)
    aside = 2.0**-39  # forty halvings
    assert table.cdf(np.array([place - aside, place + aside])) == pytest.approx([place / 2, 1], abs=1e-11)
