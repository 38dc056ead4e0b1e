"""Bisection over the bits of floats, of either sign and of any size."""

import numpy as np
import pytest

from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import shifted
from vflsim.timing.floats import first

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
