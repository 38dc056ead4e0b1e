"""The law of a delay that is shifted and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.atoms import Atoms
from vflsim.timing.base import Delay
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law, Point

_STEPS = 4
"""The most floats by which rounding may move a quantile below an atom."""


@final
@dataclass(frozen=True)
class OfDelay(Law):
    """``shift`` + ``scale`` · a delay."""

    delay: Delay
    shift: float = 0.0
    scale: float = 1.0

    @property
    @override
    def support(self) -> tuple[float, float]:
        shortest, longest = self.delay.support
        return self.shift + self.scale * shortest, self.shift + self.scale * longest

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.shift), *(_scaled(law, self.scale) for law in self.delay.summands())

    @override
    def alternatives(self) -> tuple[tuple[float, Law], ...]:
        found = self.delay.alternatives()
        if len(found) == 1 or self.shift or not all(isinstance(law, Delay) for _, law in found):
            return ((1.0, self),)
        return tuple((weight, _scaled(law, self.scale)) for weight, law in found)

    @override
    def phases(self) -> Mapping[float, float] | None:
        found = self.delay.phases()
        return None if found is None or self.shift else {mean * self.scale: share for mean, share in found.items()}

    @override
    def nodes(self) -> Atoms | None:
        found = self.delay.nodes()
        return None if found is None else Atoms(self.shift + self.scale * found.values, found.masses)

    @property
    @override
    def precise_tail(self) -> bool:
        return self.delay.precise_tail

    @property
    @override
    def accuracy(self) -> float:
        return self.delay.accuracy

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self.delay.cdf((floats(x) - self.shift) / self.scale)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return self.delay.survival((floats(x) - self.shift) / self.scale)

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        x = floats(self.shift + self.scale * self.delay.inverse_cdf(u))
        for _ in range(_STEPS):  # (x − shift) / scale may round to a float below an atom
            x = np.where(self.cdf(x) < u, np.nextafter(x, np.inf), x)
        return x

    @override
    def density(self, x: ArrayLike) -> Floats:
        return self.delay.density((floats(x) - self.shift) / self.scale) / self.scale

    @override
    def atoms(self) -> Atoms:
        values, masses = self.delay.atoms()
        return Atoms(self.shift + self.scale * values, masses)

    @property
    @override
    def breaks(self) -> Floats:
        return self.shift + self.scale * self.delay.breaks

    @override
    def expectation(self) -> float:
        return self.shift + self.scale * self.delay.expectation()

    @override
    def variance(self) -> float:
        return self.scale * self.scale * self.delay.variance()

    @override
    def error(self) -> float:
        return self.scale * self.delay.error()

    @override
    def variance_error(self) -> float:
        return self.scale * self.scale * self.delay.variance_error()


def knows_quantiles(law: Law) -> bool:
    """Return whether quantiles have a formula and need no search."""
    return isinstance(law, OfDelay) and law.delay.uniforms == 1


def _scaled(law: Law, scale: float) -> Law:
    """Give the law of ``scale`` times a summand of a delay, or one of its alternatives."""
    if scale == 1.0:
        return law
    if isinstance(law, Point):
        return Point(scale * law.value)
    assert isinstance(law, Delay), "delays are made of delays"
    return OfDelay(law, 0.0, scale)
