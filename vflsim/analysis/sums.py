"""The law of a sum of independent times, such as the consecutive activities of a client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.analysis.affine import OfDelay
from vflsim.analysis.interpolation import Interpolated
from vflsim.timing.atoms import Atoms
from vflsim.timing.base import Delay
from vflsim.timing.composite import Sum
from vflsim.timing.floats import Floats, floats
from vflsim.timing.law import Law, MixtureLaw, Point, mixture
from vflsim.timing.quadrature import double_exponential, gauss

ERROR = 1e-10
"""Absolute error of the cdf of a sum of laws with few kinks."""


def total(laws: Iterable[Law]) -> Law:
    """Give the law of the sum of independent times.

    Constants are added exactly. Random times are convolved numerically, two at a time. Mean and variance are the sums
    of the parts', without the convolution's error (``ERROR``).
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
    # The order of the terms does not matter. Common parts of clients mostly come first, and are convolved once.
    random = (*sorted(smooth, key=lambda law: (knows_quantiles(law), law.variance(), repr(law))), *discrete)
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
        # A kink of one part is smoothed by the others, but for those at their ends.
        return self.constant + self._random.breaks

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
        return _convolved(self.parts)


@lru_cache(1024)
def _convolved(parts: tuple[Law, ...]) -> Law:
    if len(parts) == 1:
        return parts[0]
    sum_ = Convolution(_convolved(parts[:-1]), parts[-1])
    return sum_ if is_discrete(parts[-1]) and sum_.accuracy <= ERROR else Interpolated(sum_)


@final
@dataclass(frozen=True)
class Convolution(Law):
    """The sum of two independent times: F(x) = E F_first(x − Y), Y having the second law.

    Over the levels of the second law where it knows its quantiles, else over its density and its atoms.
    """

    first: Law
    second: Law

    @property
    @override
    def support(self) -> tuple[float, float]:
        (a, b), (c, d) = self.first.support, self.second.support
        return a + c, b + d

    @cached_property
    @override
    def accuracy(self) -> float:
        # With very many observed values a sum over half as many groups of them tells how much grouping changes.
        if not is_discrete(self.second):
            return super().accuracy
        if len(self._atoms.values) < _MOST_ATOMS:
            return ERROR
        levels = np.linspace(0.0, 1.0, 66)[1:-1]
        x = self.first.quantile(levels) + self._atoms.values[(levels * len(self._atoms.values)).astype(np.int64)]
        fewer = _lumped(self.second, _MOST_ATOMS // 2)
        return float(np.abs(self._over_atoms(x, self._atoms) - self._over_atoms(x, fewer)).max())

    @cached_property
    def _atoms(self) -> Atoms:
        return _lumped(self.second, _MOST_ATOMS)

    @property
    @override
    def breaks(self) -> Floats:
        laws = self.first, self.second
        one, two = (law.breaks if len(law.breaks) <= _MOST_BREAKS else np.array(law.support) for law in laws)
        breaks = floats(np.unique(np.add.outer(one, two)))
        return breaks[np.isfinite(breaks)]

    @override
    def variance(self) -> float:
        return self.first.variance() + self.second.variance()

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        points = floats(x)
        together = _TOGETHER
        if is_discrete(self.second):
            over: Callable[[Floats], Floats] = partial(self._over_atoms, atoms=self._atoms)
        elif knows_quantiles(self.second):
            over = self._over_levels
        else:
            over = self._over_density
            panels = len(self.second.table.edges) + len(self._edges)
            together = min(_TOGETHER, 1 + _CELLS // (panels * len(_GAUSS)))
        found = [over(part) for part in np.array_split(points.ravel(), 1 + points.size // together)]
        return np.clip(np.concatenate(found), 0.0, 1.0).reshape(points.shape)

    def _over_levels(self, x: Floats) -> Floats:
        # Smooth between the levels u at which x − Q(u) passes a kink of the first law, or Q one of its own; at those
        # ends the integrand may be singular, which the double exponential rule copes with.
        levels = [np.zeros_like(x), np.ones_like(x)]
        levels += [self.second.cdf(x - kink) for kink in self._turns]
        levels += [np.broadcast_to(self.second.cdf(kink), x.shape) for kink in self.second.breaks]
        value = np.zeros_like(x)
        for low, high in pairwise(np.sort(np.stack(levels), axis=0)):
            there = high > low
            if there.any():
                width = (high - low)[there]
                u = np.minimum(low[there, None] + width[:, None] * _U, 1.0 - 2.0**-53)
                value[there] += width * (self.first.cdf(x[there, None] - self.second.quantile(u)) @ _W)
        return value

    @cached_property
    def _turns(self) -> list[float]:
        """Points between which the cdf of the first law is smooth, however narrow it is beside the second."""
        turns = {*self.first.breaks.tolist(), *self.first.quantile(_SCALE).tolist()}
        return sorted(x for x in turns if math.isfinite(x))

    def _over_density(self, x: Floats) -> Floats:
        table = self.second.table
        edges = np.concatenate([np.tile(table.edges, (len(x), 1)), x[:, None] - self._edges], axis=1)
        edges = np.sort(np.clip(edges, table.edges[0], table.edges[-1]), axis=1)
        row, panel = np.nonzero((np.diff(edges, axis=1) > 0) & (edges[:, :-1] < x[:, None]))
        low, width = edges[row, panel], edges[row, panel + 1] - edges[row, panel]
        y = low[:, None] + width[:, None] * _GAUSS
        inner = (self.first.cdf(x[row, None] - y) * table.density(y)) @ _GAUSS_WEIGHTS
        smooth = np.bincount(row, inner * width, len(x))
        places, masses = table.mass
        return np.asarray(smooth + self.first.cdf(x[:, None] - places) @ masses)

    def _over_atoms(self, x: Floats, atoms: Atoms) -> Floats:
        places, masses = atoms
        step = max(1, _CELLS // len(places))
        found = np.zeros(len(x))
        for start in range(0, len(x), step):
            each = self.first.cdf(x[start : start + step, None] - places)
            below, above = each @ masses, (1.0 - each) @ masses
            found[start : start + step] = np.where(below > 0.5, 1.0 - above, below)  # 0 and 1 in spite of rounding
        return found

    @property
    def _edges(self) -> Floats:
        """Points between which the cdf of the first law is smooth."""
        return self.first.table.edges if isinstance(self.first, Interpolated) else self.first.breaks


def knows_quantiles(law: Law) -> bool:
    """Tell whether quantiles have a formula and need no search."""
    return isinstance(law, OfDelay) and law.delay.uniforms == 1


@lru_cache(1024)
def is_discrete(law: Law) -> bool:
    """Tell whether the law is that of observed times or of sums of them, with nothing between the values."""
    return isinstance(law, OfDelay) and all(term.atoms().mass > 1 - 1e-12 for term in _terms(law))


@lru_cache(64)
def _lumped(law: OfDelay, most: int) -> Atoms:
    """Give the values of a discrete law, joined into groups where they are more than ``most``."""
    atoms = reduce(lambda sum_, term: sum_.plus(term).lumped(most), (term.atoms().lumped(most) for term in _terms(law)))
    return Atoms(law.shift + law.scale * atoms.values, atoms.masses)


def _terms(law: OfDelay) -> tuple[Delay, ...]:
    return law.delay.parts if isinstance(law.delay, Sum) else (law.delay,)


_TOGETHER = 512
_CELLS = 2**20
_MOST_BREAKS = 64
_MOST_ATOMS = 2048
_SCALE = np.array([1e-13, 1e-6, 0.01, 0.5, 0.99, 1 - 1e-6, 1 - 1e-13])
_U, _W = double_exponential(0.09)
_GAUSS, _GAUSS_WEIGHTS = gauss(10)
