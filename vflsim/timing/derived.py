"""Delays whose distribution is that of a law made of other laws."""

from __future__ import annotations

from abc import abstractmethod

from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.atoms import Atoms
from vflsim.timing.base import Delay
from vflsim.timing.floats import Floats
from vflsim.timing.law import Law


class Derived(Delay):
    """A delay that is distributed by ``law``."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """The law of the delay."""

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self.law.cdf(x)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return self.law.survival(x)

    @property
    @override
    def tail_index(self) -> float:
        return self.law.tail_index

    @override
    def density(self, x: ArrayLike) -> Floats:
        return self.law.density(x)

    @override
    def atoms(self) -> Atoms:
        return self.law.atoms()

    @property
    @override
    def breaks(self) -> Floats:
        return self.law.breaks

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self.law.support

    @override
    def expectation(self) -> float:
        return self.law.expectation()

    @override
    def variance(self) -> float:
        return self.law.variance()

    @override
    def error(self) -> float:
        return self.law.error()
