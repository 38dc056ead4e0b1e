"""A law whose cdf is expensive, kept as polynomials on panels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.atoms import Atoms
from vflsim.timing.chebyshev import ChebyshevTable
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law

_WIDE = 6


@final
@dataclass(frozen=True)
class Interpolated(Law):
    """``law`` with a cdf by Chebyshev interpolation."""

    law: Law

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self.law.support

    @property
    @override
    def breaks(self) -> Floats:
        return self.law.breaks

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self.table.cdf(floats(x))

    @property
    def edges(self) -> Floats:
        """The ends of the panels."""
        return self.table.edges

    @override
    def atoms(self) -> Atoms:
        return Atoms(*self.table.mass)

    @property
    @override
    def accuracy(self) -> float:
        return self.law.accuracy

    @override
    def error(self) -> float:
        # Errors of the cdf matter only where there is probability, within some standard deviations.
        known = math.isfinite(spread := math.sqrt(self.variance()))
        return super().error() + (self.law.accuracy * _WIDE * spread if known else 0.0)

    @property
    @override
    def table(self) -> ChebyshevTable:
        return self.law.table
