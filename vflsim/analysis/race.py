"""The race between t-synchronous and synchronous rounds of the same times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from vflsim.timing.floats import Floats
from vflsim.timing.law import Law
from vflsim.timing.order import maximum, order_statistic

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True)
class Race:
    """A comparison of waiting for the first t clients and for all; both restart with every round."""

    fastest: Law
    everybody: Law

    def ratio(self) -> float:
        """Give E T₍ₜ₎ / E T₍M₎: the share of a synchronous round that a t-synchronous one takes, in the long run."""
        return self.fastest.expectation() / self.everybody.expectation()

    def below(self, x: ArrayLike) -> Floats:
        """Give P(T₍ₜ₎ ≤ x)."""
        return self.fastest.cdf(x)


def race(laws: Sequence[Law], t: int) -> Race:
    """Give the race of clients with these times. Raises ValueError for a t out of range."""
    return Race(order_statistic(laws, t), maximum(laws))


def exponential_ratio() -> sympy.Expr:
    """Give E T₍ₜ₎ / E T₍M₎ of M identical exponential times: (H_M − H_{M−t}) / H_M."""
    import sympy

    clients, t = sympy.symbols("M t", positive=True, integer=True)
    return (sympy.harmonic(clients) - sympy.harmonic(clients - t)) / sympy.harmonic(clients)
