"""The law of a sum of independent times, such as the consecutive activities of a client."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import final

from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.affine import OfDelay, knows_quantiles
from vflsim.timing.atoms import Atoms
from vflsim.timing.branches import sum_of
from vflsim.timing.composite import Sum
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law, MixtureLaw, Point, mixture

_MOST_ATOMS = 2048


def total(laws: Iterable[Law]) -> Law:
    """Give the law of the sum of independent times.

    Mean and variance are the sums of the parts', without the error of a convolution.
    """
    constant, smooth, discrete = 0.0, list[Law](), list[OfDelay]()
    for law in laws:
        if isinstance(law, Point):
            constant += law.value
            continue
        if isinstance(law, OfDelay):
            constant, law = constant + law.shift, OfDelay(law.delay, 0.0, law.scale)
        if isinstance(law, OfDelay) and is_discrete(law):
            discrete.append(law)
        else:
            smooth.append(law)
    if len(discrete) > 1 and all(law.scale == 1.0 for law in discrete):
        parts = tuple(sorted((law.delay for law in discrete), key=repr))
        discrete = [OfDelay(Sum.model_construct(parts=parts))]  # type: ignore[arg-type]
    # The order of terms does not matter. Common parts of clients mostly come first, and are convolved once.
    if len(smooth) > 1:  # the variance of one alone may be an integral that nobody needs
        smooth.sort(key=lambda law: (knows_quantiles(law), law.variance(), repr(law)))
    random = (*smooth, *discrete)
    if not random:
        return Point(constant)
    return shifted(random[0], constant) if len(random) == 1 else SumLaw(constant, random)


def shifted(law: Law, by: float) -> Law:
    """Give the law of a time plus a constant."""
    if by == 0.0:
        return law
    if isinstance(law, Point):
        return Point(law.value + by)
    if isinstance(law, OfDelay):
        return OfDelay(law.delay, law.shift + by, law.scale)
    if isinstance(law, SumLaw):
        return SumLaw(law.constant + by, law.parts)
    if isinstance(law, MixtureLaw):
        return mixture((weight, shifted(part, by)) for weight, part in law.parts)
    return SumLaw(by, (law,))


@final
@dataclass(frozen=True)
class SumLaw(Law):
    """A constant and at least one independent random time."""

    constant: float
    parts: tuple[Law, ...]

    @property
    @override
    def support(self) -> tuple[float, float]:
        ends = [law.support for law in self.parts]
        return self.constant + sum(low for low, _ in ends), self.constant + sum(high for _, high in ends)

    @property
    @override
    def breaks(self) -> Floats:
        return self.constant + self._random.breaks

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.constant), *(law for part in self.parts for law in part.summands())

    @property
    @override
    def precise_tail(self) -> bool:
        return self._random.precise_tail

    @override
    def density(self, x: ArrayLike) -> Floats:
        return self._random.density(floats(x) - self.constant)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self._random.cdf(floats(x) - self.constant)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return self._random.survival(floats(x) - self.constant)

    @override
    def atoms(self) -> Atoms:
        each = [law.atoms() for law in self.parts]
        if not all(len(atoms.values) for atoms in each):
            return Atoms.none()
        return reduce(Atoms.plus, each, Atoms.at(self.constant))

    @override
    def expectation(self) -> float:
        return self.constant + math.fsum(law.expectation() for law in self.parts)

    @override
    def variance(self) -> float:
        return math.fsum(law.variance() for law in self.parts)

    @override
    def error(self) -> float:
        return math.fsum(law.error() for law in self.parts)

    @override
    def variance_error(self) -> float:
        return math.fsum(law.variance_error() for law in self.parts)

    @property
    @override
    def accuracy(self) -> float:
        return self._random.accuracy

    @cached_property
    def _random(self) -> Law:
        return _sum_of(self.parts)


@lru_cache(1024)
def _sum_of(parts: tuple[Law, ...]) -> Law:
    return sum_of(parts, _MOST_ATOMS)


@lru_cache(1024)
def is_discrete(law: Law) -> bool:
    """Return whether the law is that of observed times or of their sums, without interpolation between values."""
    return isinstance(law, OfDelay) and all(part.atoms().mass > 1 - 1e-12 for part in law.summands())
