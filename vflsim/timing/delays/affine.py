"""The law of a delay that is shifted and scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.law import Law, Point, Transformed

_STEPS = 4
"""The most floats by which rounding may move a quantile below an atom."""


@final
@dataclass(frozen=True)
class OfDelay(Transformed):
    """``shift`` + ``scale`` · a delay."""

    delay: Delay
    shift: float = 0.0
    scale: float = 1.0

    @property
    @override
    def law(self) -> Delay:
        return self.delay

    @override
    def _place(self, x: ArrayLike) -> Floats:
        return (floats(x) - self.shift) / self.scale

    @override
    def _image(self, x: Floats) -> Floats:
        return self.shift + self.scale * x

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.shift), *(_scaled(law, self.scale) for law in self.delay.summands())

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        x = floats(self._image(self.delay.inverse_cdf(u)))
        for _ in range(_STEPS):  # (x − shift) / scale may round to a float below an atom
            x = np.where(self.cdf(x) < u, np.nextafter(x, np.inf), x)
        return x

    @override
    def density(self, x: ArrayLike) -> Floats:
        return super().density(x) / self.scale

    @override
    def variance(self) -> float:
        return self.scale * self.scale * self.delay.variance()

    @override
    def error(self) -> float:
        return self.scale * self.delay.error()


def _scaled(law: Law, scale: float) -> Law:
    """Give the law of ``scale`` times a summand of a delay."""
    if scale == 1.0:
        return law
    if isinstance(law, Point):
        return Point(scale * law.value)
    assert isinstance(law, Delay), "delays are made of delays"
    return OfDelay(law, 0.0, scale)
