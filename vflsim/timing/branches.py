"""The law of a sum of independent times, decomposed into atoms and times with a density.

Every law consists of atoms and of continuous laws. So does a sum of two: it has the sums of their atoms, the continuous
laws of each shifted by the other's atoms, and the convolutions of continuous laws. Constants and atoms are therefore
added exactly, exponentials have a hypoexponential law in closed form, and only what is left is convolved numerically
(``Convolution``). Laws that are alike are convolved once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.atoms import MAX_ATOMS, Atoms
from vflsim.timing.continuous import MOST_KINKS, convolved, fitted
from vflsim.timing.floats import Floats, floats
from vflsim.timing.hypoexponential import exponentials
from vflsim.timing.interpolation import Interpolated
from vflsim.timing.law import Law, MixtureLaw
from vflsim.timing.order import OrderStatistic

_WHOLE: Final = 1 - 1e-12
"""The least mass that equals 1 except for rounding."""
_MOST_PHASES: Final = 32
"""The most combinations of phases of exponentials in a sum."""
_MOST_BRANCHES: Final = 16
"""The most branches with separate laws; more branches are convolved as one law."""
_CELLS: Final = 2**20  # of a table that is made at once
_FEW: Final = 16
"""The most values whose sums with the breaks of a continuous law are listed."""
_ZERO = Atoms.at(0.0)
_LEVELS = np.linspace(0.0, 1.0, 66)[1:-1]

Weights = Mapping[tuple[Law, ...], Atoms]
"""The atoms that are added to the sum of some continuous laws, with the joint probabilities."""


def sum_of(parts: Iterable[Law], most: int = MAX_ATOMS) -> Law:
    """Give the law of the sum of independent times.

    Beside a density, more than ``most`` atoms stand for groups of about equal mass (``Atoms.lumped``). Raises
    TooLargeError for too many sums of atoms.
    """
    each = [law for part in parts for law in part.summands()]
    discrete = [law.atoms() for law in each if law.atoms().mass >= _WHOLE]
    continuous = [law for law in each if law.atoms().mass < _WHOLE]
    for law in sorted(continuous, key=lambda law: -len(law.breaks)):
        many = len(continuous) > 1 and math.prod(len(other.breaks) for other in continuous) > MOST_KINKS
        if many and (nodes := law.nodes()) is not None:
            discrete.append(nodes)
            continuous.remove(law)
    phased, others = list[Mapping[float, float]](), list[Law]()
    for law in continuous:
        if (phases := law.phases()) is not None and math.prod(map(len, [*phased, phases])) <= _MOST_PHASES:
            phased.append(phases)
        else:
            others.append(law)
    most = most if phased or others else MAX_ATOMS
    fixed = reduce(lambda sum_, atoms: sum_.plus(atoms).lumped(most), discrete, _ZERO)
    # Clients often differ in one part, so the sum of their common parts, which mostly come first, is computed once.
    others.sort(key=lambda law: (law.variance(), repr(law)))
    return _of_branches(_branches([*_sum_of_phases(phased), *others]), fixed, most)


def _sum_of_phases(phased: Iterable[Mapping[float, float]]) -> Iterable[Law]:
    """Give laws whose sum is the sum of mixtures of exponentials, each with means and their probabilities."""
    ways: dict[tuple[float, ...], float] = {(): 1.0}
    for phases in phased:
        longer: dict[tuple[float, ...], float] = {}
        for means, weight in ways.items():
            for mean, share in phases.items():
                key = tuple(sorted((*means, mean)))
                longer[key] = longer.get(key, 0.0) + weight * share
        ways = longer
    return _hypoexponentials(tuple(ways.items())) if () not in ways else ()


@lru_cache(1024)
def _hypoexponentials(ways: tuple[tuple[tuple[float, ...], float], ...]) -> tuple[Law, ...]:
    """Give laws whose sum is that of exponentials, whose means are one of several ``ways`` with a probability."""
    if len(ways) == 1:
        return exponentials(ways[0][0])
    return (MixtureLaw(tuple((weight, _convolved(exponentials(means))) for means, weight in ways)),)


def _branches(laws: Iterable[Law]) -> Weights:
    """Give the continuous laws that add up in each branch of a sum, and the atoms that are added to them."""
    found: dict[tuple[Law, ...], Atoms] = {(): _ZERO}
    for law in laws:
        atoms, rest = law.atoms(), _rest(law)
        longer: dict[tuple[Law, ...], Atoms] = {}
        for key, values in found.items():
            for more, weighed in ((key, values.plus(atoms)), ((*key, rest), values.weighed(1 - atoms.mass))):
                if len(weighed.values):
                    longer[more] = longer[more].together(weighed) if more in longer else weighed
        found = longer
        if len(found) > _MOST_BRANCHES:
            whole = found.pop((), Atoms.none())
            joined = _of_branches({key: values.weighed(1 / (1 - whole.mass)) for key, values in found.items()})
            found = {(joined,): _ZERO.weighed(1 - whole.mass)} | ({(): whole} if len(whole.values) else {})
    return found


def _of_branches(branches: Weights, fixed: Atoms = _ZERO, most: int = MAX_ATOMS) -> Law:
    """Give the law of a sum that has these branches, and values ``fixed`` besides."""
    parts: list[tuple[float, Law]] = []
    for key, values in branches.items():
        added = values.weighed(1 / values.mass).plus(fixed)
        law = None if not key else _fast(key) if len(added.values) > _FEW else _convolved(key)
        many = law is not None and len(added.values) >= most
        branch = Branch(added.lumped(most) if many else added, law, added.lumped(most // 2) if many else None)
        parts.append((values.mass, branch.simplest))
    law = parts[0][1] if len(parts) == 1 else MixtureLaw(tuple(parts))
    return Interpolated(law) if any(isinstance(part, Branch) and part.coarser is not None for _, part in parts) else law


@lru_cache(1024)
def _convolved(laws: tuple[Law, ...]) -> Law:
    return laws[0] if len(laws) == 1 else convolved(laws[-1], _convolved(laws[:-1]))


@lru_cache(1024)
def _rest(law: Law) -> Law:
    """Give the continuous part of a law, with a fast cdf and density."""
    rest = continuous_part(law)
    return fitted(rest) if isinstance(law, OrderStatistic) else rest


@lru_cache(1024)
def _fast(laws: tuple[Law, ...]) -> Law:
    law = _convolved(laws)
    return fitted(law) if len(law.alternatives()) > 1 else law


@final
@dataclass(frozen=True, eq=False)
class Branch(Law):
    """One of some values, with masses, and a continuous time (None: none). ``coarser``: fewer groups of the values."""

    values: Atoms
    law: Law | None = None
    coarser: Atoms | None = None

    @property
    def simplest(self) -> Law:
        """The continuous law itself, if nothing is added to it."""
        return self.law if self.law is not None and self.values.values.tolist() == [0.0] else self

    @property
    @override
    def support(self) -> tuple[float, float]:
        shortest, longest = (0.0, 0.0) if self.law is None else self.law.support
        return shortest + float(self.values.values[0]), longest + float(self.values.values[-1])

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return 1.0 - self.values.cdf(x) if self.law is None else self._shifted(self.law.survival, floats(x))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return self.values.cdf(x) if self.law is None else self._shifted(self.law.cdf, floats(x))

    @property
    @override
    def precise_tail(self) -> bool:
        return self.law is None or self.law.precise_tail

    @cached_property
    @override
    def accuracy(self) -> float:
        """The error of the law, or the change of the cdf with half as many groups."""
        if self.law is None:
            return super().accuracy
        if self.coarser is None:
            return self.law.accuracy
        x = self.law.quantile(_LEVELS) + self.values.values[(_LEVELS * len(self.values.values)).astype(np.int64)]
        return float(np.abs(self.cdf(x) - Branch(self.coarser, self.law).cdf(x)).max())

    @override
    def expectation(self) -> float:
        return float(self.values.values @ self.values.masses) + (0.0 if self.law is None else self.law.expectation())

    @override
    def variance(self) -> float:
        values, masses = self.values
        off = values - values @ masses
        return float(off * off @ masses) + (0.0 if self.law is None else self.law.variance())

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.zeros(np.shape(x)) if self.law is None else self._shifted(self.law.density, floats(x))

    @override
    def atoms(self) -> Atoms:
        return self.values if self.law is None else Atoms.none()

    @property
    @override
    def breaks(self) -> Floats:
        if self.law is None:
            return self.values.values
        values = self.values.values if len(self.values.values) <= _FEW else self.values.values[[0, -1]]
        return np.unique(np.add.outer(values, self.law.breaks).ravel())

    def _shifted(self, function: Callable[[Floats], Floats], x: Floats) -> Floats:
        flat, (values, masses) = x.ravel(), self.values
        step = max(1, _CELLS // len(values))
        parts = [function(flat[i : i + step, None] - values) @ masses for i in range(0, len(flat), step)]
        return np.concatenate(parts).reshape(x.shape) if parts else np.empty(x.shape)


def continuous_part(law: Law) -> Law:
    """Give the law of a time given that it has none of the values of its atoms."""
    if law.atoms().mass == 0:
        return law
    alternatives = law.alternatives()
    if len(alternatives) == 1:
        return WithoutAtoms(law)
    shares = [(weight * (1 - part.atoms().mass), part) for weight, part in alternatives]
    whole = math.fsum(share for share, part in shares if part.atoms().mass < _WHOLE)
    return MixtureLaw(
        tuple((share / whole, continuous_part(part)) for share, part in shares if part.atoms().mass < _WHOLE)
    )


@final
@dataclass(frozen=True)
class WithoutAtoms(Law):
    """The continuous part of a law, scaled to a probability of 1."""

    law: Law

    @property
    @override
    def support(self) -> tuple[float, float]:
        return self.law.support

    @property
    @override
    def precise_tail(self) -> bool:
        return self.law.precise_tail

    @property
    @override
    def accuracy(self) -> float:
        return self.law.accuracy

    @property
    @override
    def breaks(self) -> Floats:
        return self.law.breaks

    @override
    def survival(self, x: ArrayLike) -> Floats:
        values, above, weight = self._atoms
        level = self.law.survival(x) - above[np.searchsorted(values, floats(x), side="right")]
        return np.asarray(np.clip(level / weight, 0.0, 1.0))

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return 1.0 - self.survival(x)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return self.law.density(x) / self._atoms[2]

    @cached_property
    def _atoms(self) -> tuple[Floats, Floats, float]:
        """The atoms' values, the masses above each of them, and the probability of the continuous part."""
        values, masses = self.law.atoms()
        return values, np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]]), 1 - float(masses.sum())
