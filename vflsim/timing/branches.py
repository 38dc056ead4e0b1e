"""A sum taken apart: one branch for each choice of the mixtures among its parts (see ``sums``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from vflsim.timing.base import Delay, Floats, TooLargeError, floats
from vflsim.timing.basic import Constant, Exponential, ShiftedExponential
from vflsim.timing.empirical import Empirical
from vflsim.timing.numeric import Law
from vflsim.timing.sums import Atoms, Convolution, Hypoexponential, Interpolated, Numeric

MAX_BRANCHES = 1024
_CELLS = 2**20  # of a table that is made at once
_ALIKE = 1.25  # ratio of means
_FEW = 16  # atoms: with more of them, what they shift is interpolated first

NOTHING = Atoms(np.zeros(1), np.ones(1))


@dataclass(frozen=True)
class Branch:
    """One way in which a sum can come about: its weight, its atoms, means of exponentials, other continuous laws."""

    weight: float = 1.0
    atoms: Atoms = NOTHING
    means: tuple[float, ...] = ()
    others: tuple[Law, ...] = ()

    def plus(self, other: Branch) -> Branch:
        """Give the branch in which both happen, one after the other."""
        return Branch(
            self.weight * other.weight,
            self.atoms.plus(other.atoms),
            self.means + other.means,
            self.others + other.others,
        )

    @property
    def discrete(self) -> bool:
        """Whether nothing of it is continuous."""
        return not (self.means or self.others)

    @cached_property
    def smooth(self) -> Law:
        """The law of what is continuous in it."""
        laws = [*_exponentials(self.means), *self.others]
        return reduce(lambda b, a: interpolated(Convolution(a, b)), laws[1:], laws[0])

    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x) within the branch."""
        if self.discrete:
            return 1.0 - self.atoms.cdf(x)
        return self._shifted(self.smooth.survival, floats(x))

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X ≤ x) within the branch."""
        return self.atoms.cdf(x) if self.discrete else self._shifted(self.smooth.cdf, floats(x))

    def density(self, x: ArrayLike) -> Floats:
        """The derivative of the cdf, within the branch."""
        return np.zeros(np.shape(x)) if self.discrete else self._shifted(self.smooth.density, floats(x))

    def breaks(self) -> Floats:
        """Where the cdf is not smooth."""
        if self.discrete:
            return self.atoms.values
        values = self.atoms.values if len(self.atoms.values) <= _FEW else self.atoms.values[[0, -1]]
        return np.unique(np.add.outer(values, self.smooth.breaks()).ravel())

    def _shifted(self, function: object, x: Floats) -> Floats:
        assert callable(function)
        flat = x.ravel()
        step = max(1, _CELLS // len(self.atoms.values))
        parts = [
            function(flat[i : i + step, None] - self.atoms.values) @ self.atoms.masses
            for i in range(0, len(flat), step)
        ]
        return np.concatenate(parts).reshape(x.shape) if parts else np.empty(x.shape)


def _exponentials(means: Sequence[float]) -> list[Law]:
    """Give laws whose sum is the sum of exponentials, each in a form that loses no digits.

    Means that are nearly alike, whose partial fractions would cancel, go through the chain of their stages.
    """
    if not means:
        return []
    together = Hypoexponential(means)
    if together.stable:
        return [together]
    clusters: list[list[float]] = []
    for mean in sorted(means):
        if clusters and mean <= min(_ALIKE * clusters[-1][-1], 2 * clusters[-1][0]):
            clusters[-1].append(mean)
        else:
            clusters.append([mean])
    singles = Hypoexponential([cluster[0] for cluster in clusters if len(cluster) == 1] or [1.0])
    if len(clusters) == sum(len(cluster) > 1 for cluster in clusters) or not singles.stable:
        return [Hypoexponential(cluster) for cluster in clusters]
    return [singles, *(Hypoexponential(cluster) for cluster in clusters if len(cluster) > 1)]


def interpolated(convolution: Convolution) -> Interpolated:
    """Give the law of a convolution."""
    return Interpolated(convolution, convolution.low, convolution.high, convolution.edges())


def branches(parts: Sequence[Delay]) -> tuple[Branch, ...]:
    """Give the branches of a sum. Raises TooLargeError if there are too many of them, or of their atoms."""
    continuous = [not math.isclose(part.atoms()[1].sum(), 1.0, rel_tol=1e-12) for part in parts]
    alternatives = [
        tuple(_alternatives(part, alone=sum(continuous) == continuous[place])) for place, part in enumerate(parts)
    ]
    while math.prod(map(len, alternatives)) > MAX_BRANCHES:
        # The largest mixture without atoms is convolved as it is.
        sizes = [len(own) if not len(part.atoms()[0]) else 1 for own, part in zip(alternatives, parts, strict=True)]
        largest = int(np.argmax(sizes))
        if sizes[largest] == 1:
            raise TooLargeError(
                f"{math.prod(map(len, alternatives)):,} ways in which mixtures can add up are too many for the exact "
                "distribution of a sum",
                "",
                f"{MAX_BRANCHES:,} ways",
            )
        alternatives[largest] = (Branch(others=(parts[largest],)),)
    return tuple(reduce(Branch.plus, choice) for choice in product(*alternatives))


def _alternatives(part: Delay, alone: bool) -> Iterator[Branch]:
    """Give the branches of one part; ``alone``: nothing else in the sum is continuous."""
    if isinstance(part, Empirical) and not alone:
        yield Branch(atoms=part.as_atoms())
    elif isinstance(part, Constant):
        yield Branch(atoms=Atoms(np.array([part.value]), np.ones(1)))
    elif isinstance(part, Exponential):
        yield Branch(means=(part.mean,))
    elif isinstance(part, ShiftedExponential):
        yield Branch(atoms=Atoms(np.array([part.shift]), np.ones(1)), means=(part.mean,))
    else:
        pieces = part.pieces()
        if pieces is not None:
            for weight, inner in pieces:
                for branch in branches(inner):
                    yield Branch(weight * branch.weight, branch.atoms, branch.means, branch.others)
            return
        values, masses = part.atoms()
        share = float(masses.sum())
        if share > 0:
            yield Branch(share, Atoms(values, masses / share))
        if share == 0:
            yield Branch(others=(part,))
        elif share < 1 - 1e-15:
            yield Branch(1 - share, others=(Rest(part),))


class Rest(Numeric):
    """What a law is without its atoms."""

    def __init__(self, law: Delay) -> None:
        self._law = law
        self._values, masses = law.atoms()
        self._above = np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
        self._share = 1 - float(masses.sum())
        self.low, self.high = law.support()

    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x)."""
        atoms = self._above[np.searchsorted(self._values, floats(x), side="right")]
        return np.asarray(np.clip((self._law.survival(x) - atoms) / self._share, 0.0, 1.0))

    def density(self, x: ArrayLike) -> Floats:
        """The derivative of the cdf."""
        return self._law.density(x) / self._share

    def breaks(self) -> Floats:
        """Where the cdf is not smooth."""
        return self._law.breaks()
