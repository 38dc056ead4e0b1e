"""The law of a sum of independent times, such as the consecutive activities of a client.

Constants, observed times and other atoms are added exactly, and gamma times of one scale, of which exponentials are
cases, are a gamma time. What is left is convolved on grids (Grid): of two laws, one is taken as uniform blocks, and the
integral of the other's survival function gives its probability in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.basic import Exponential
from vflsim.timing.delays.families import Gamma
from vflsim.timing.floats import Floats, floats
from vflsim.timing.laws.grid import Grid, Levels
from vflsim.timing.laws.law import MAX_ATOMS, WHOLE, Atoms, Law, Point
from vflsim.timing.laws.order import MixtureLaw, Transformed, mixture

_MOST_ATOMS: Final = 1024
"""The most atoms beside a time with a density; more stand for groups of about equal mass."""
_MOST_BREAKS: Final = 512
_FEW_BREAKS: Final = 64
_CELLS: Final = 2**17
"""Probabilities of blocks that are computed at once."""
_APART: Final = 1e-9
"""The least width of a block, relative to the time at which its probability is asked for: differences need digits."""


def total(laws: Iterable[Law]) -> Law:
    """Give the law of the sum of independent times.

    Mean and variance are the sums of the parts', without the error of a convolution.
    """
    constant, parts = 0.0, list[Law]()
    for law in laws:
        if isinstance(law, Point):
            constant += law.value
        elif isinstance(law, OfDelay):
            constant += law.shift
            parts.append(OfDelay(law.delay, 0.0, law.scale))
        else:
            parts.append(law)
    if not parts:
        return Point(constant)
    parts.sort(key=repr)  # the order of terms does not matter
    return shifted(parts[0], constant) if len(parts) == 1 else SumLaw(constant, tuple(parts))


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
class SumLaw(Transformed):
    """A constant and at least one independent random time."""

    constant: float
    parts: tuple[Law, ...]

    @cached_property
    @override
    def law(self) -> Law:
        """The law of the sum without its constant."""
        return _sum_of(self.parts)

    @override
    def _place(self, x: ArrayLike) -> Floats:
        return floats(x) - self.constant

    @override
    def _image(self, x: Floats) -> Floats:
        return self.constant + x

    @property
    @override
    def support(self) -> tuple[float, float]:
        ends = [law.support for law in self.parts]
        return self.constant + sum(low for low, _ in ends), self.constant + sum(high for _, high in ends)

    @property
    @override
    def tail_index(self) -> float:
        return min(law.tail_index for law in self.parts)

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.constant), *(law for part in self.parts for law in part.summands())

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @cached_property
    @override
    def continuous(self) -> tuple[float, Grid | None]:
        weight, grid = self.law.continuous
        return weight, None if grid is None else grid.shifted(self.constant)

    @override
    def expectation(self) -> float:
        return self.constant + math.fsum(law.expectation() for law in self.parts)

    @override
    def variance(self) -> float:
        return math.fsum(law.variance() for law in self.parts)

    @override
    def error(self) -> float:
        return math.fsum(law.error() for law in self.parts)


@lru_cache(256)
def _sum_of(parts: tuple[Law, ...]) -> Law:
    """Give the law of a sum without its constant."""
    each = [law for part in parts for law in part.summands()]
    if len(each) == 1:
        return each[0]
    constant, others = sum(law.value for law in each if isinstance(law, Point)), list(_named(each))
    discrete = [law.atoms() for law in others if law.atoms().mass >= WHOLE]
    smooth = sorted((law for law in others if law.atoms().mass < WHOLE), key=repr)
    most = _MOST_ATOMS if smooth else MAX_ATOMS
    fixed = reduce(lambda sum_, atoms: sum_.plus(atoms).lumped(most), discrete, Atoms.at(constant))
    if not smooth:
        return GridLaw(fixed, 0.0, None)
    if len(fixed.values) > 1:
        return _added(GridLaw(fixed, 0.0, None), _folded(tuple(smooth)))
    law = smooth[0] if len(smooth) == 1 else _folded(tuple(smooth))
    return shifted(law, float(fixed.values[0]))


def _named(laws: Iterable[Law]) -> Iterator[Law]:
    """Join gamma times of one scale, and leave out constants; give the others as they are."""
    shapes: dict[float, float] = {}
    for law in laws:
        delay, scale, shift = (law.delay, law.scale, law.shift) if isinstance(law, OfDelay) else (law, 1.0, 0.0)
        if isinstance(delay, Exponential) and not shift:
            shapes[scale * delay.mean] = shapes.get(scale * delay.mean, 0.0) + 1.0
        elif isinstance(delay, Gamma) and not shift:
            each = scale * delay.expectation() / delay.shape
            shapes[each] = shapes.get(each, 0.0) + delay.shape
        elif not isinstance(law, Point):
            yield law
    for scale, shape in shapes.items():
        yield Exponential(mean=scale) if shape == 1 else Gamma(shape=shape, scale=scale)


@lru_cache(256)
def _folded(laws: tuple[Law, ...]) -> GridLaw:
    if len(laws) == 1:
        return GridLaw(laws[0].atoms(), *laws[0].continuous)
    return _added(_folded(laws[:-1]), _folded(laws[-1:]))  # clients often differ in one part


@final
@dataclass(frozen=True, eq=False)
class GridLaw(Law):
    """Some values with their probabilities and, with probability ``weight``, a time with a density on a grid."""

    values: Atoms
    weight: float
    grid: Grid | None

    @property
    @override
    def support(self) -> tuple[float, float]:
        ends = [*self.values.values[[0, -1]].tolist()] if len(self.values.values) else []
        ends += [] if self.grid is None else [self.grid.start, self.grid.end]
        return min(ends), max(ends)

    @property
    @override
    def breaks(self) -> Floats:
        return np.union1d(self.values.values, [] if self.grid is None else self.grid.breaks)

    @property
    @override
    def tail_index(self) -> float:
        return math.inf if self.grid is None else self.grid.index

    @property
    @override
    def continuous(self) -> tuple[float, Grid | None]:
        return self.weight, self.grid

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        atoms = self.values.cdf(x) if len(self.values.values) else np.zeros(np.shape(x))
        return atoms if self.grid is None else np.minimum(atoms + self.weight * self.grid.cdf(floats(x)), 1.0)

    @override
    def survival(self, x: ArrayLike) -> Floats:
        atoms = self.values.survival(x) if len(self.values.values) else np.zeros(np.shape(x))
        return atoms if self.grid is None else np.minimum(atoms + self.weight * self.grid.survival(floats(x)), 1.0)

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        return self._on_grid(u)

    @override
    def atoms(self) -> Atoms:
        return self.values


def _added(one: GridLaw, other: GridLaw) -> GridLaw:
    """Give the law of the sum: atoms are added, grids are moved by each other's atoms, and convolved."""
    atoms = one.values.plus(other.values)
    ways = list[tuple[float, tuple[float, float], Levels]]()
    for law, beside in ((one, other), (other, one)):
        values, grid = beside.values.lumped(_MOST_ATOMS), law.grid
        if grid is None or not len(values.values):
            continue
        ends = grid.start + float(values.values[0]), grid.end + float(values.values[-1])
        ways.append((law.weight * values.mass, ends, _moved(grid, values.weighed(1 / values.mass))))
    if one.grid is not None and other.grid is not None:
        ends = one.grid.start + other.grid.start, one.grid.end + other.grid.end
        ways.append((one.weight * other.weight, ends, _convolved(one.grid, other.grid)))
    weight = math.fsum(share for share, _, _ in ways)
    if not ways:
        return GridLaw(atoms, 0.0, None)

    def levels(x: Floats) -> tuple[Floats, Floats]:
        flat = x.ravel()
        each = [(share / weight, *way(flat)) for share, _, way in ways]
        below, above = (sum(row[0] * row[side] for row in each) for side in (1, 2))
        return floats(below).reshape(x.shape), floats(above).reshape(x.shape)

    index = min(math.inf if law.grid is None else law.grid.index for law in (one, other))
    support = min(ends[0] for _, ends, _ in ways), max(ends[1] for _, ends, _ in ways)
    return GridLaw(atoms, weight, Grid.of(levels, support, _breaks(one, other), index))


def _breaks(one: GridLaw, other: GridLaw) -> Floats:
    """Give the sums of both laws' breaks, as far as they are few."""
    first, second = one.breaks, other.breaks
    if len(first) * len(second) > _MOST_BREAKS:
        first, second = first[[0, -1]], second[[0, -1]]
    return np.unique(np.add.outer(first, second))


def _moved(grid: Grid, values: Atoms) -> Levels:
    """Give P(X + V ≤ x) and P(X + V > x) for a time X on a grid, and values V."""

    def levels(x: Floats) -> tuple[Floats, Floats]:
        at = x - values.values[:, None]
        return values.masses @ grid.cdf(at), values.masses @ grid.survival(at)

    return _in_parts(levels, len(values.values))


def _convolved(one: Grid, other: Grid) -> Levels:
    """Give P(X + Y ≤ x) and P(X + Y > x): Y, with few breaks or the lighter tail, is taken as uniform blocks."""
    other, one = sorted((one, other), key=lambda grid: (len(grid.breaks) > _FEW_BREAKS, grid.reach))
    edges, masses = other.blocks
    apart = _APART * (np.arange(len(edges)) - len(edges) / 2)[:, None]

    def side(x: Floats, upper: bool) -> Floats:
        ends = edges[:, None] + apart * (x - one.start - other.start)
        return masses @ (np.abs(np.diff(one.integrals(x - ends, upper), axis=0)) / np.diff(ends, axis=0))

    def levels(x: Floats) -> tuple[Floats, Floats]:
        above = np.minimum(side(x, upper=True), 1.0)
        below = 1 - above
        early = above > 0.5
        below[early] = np.minimum(side(x[early], upper=False), 1.0)
        return below, np.where(early, 1 - below, above)

    return _in_parts(levels, len(edges))


def _in_parts(levels: Callable[[Floats], tuple[Floats, Floats]], width: int) -> Levels:
    """Give ``levels`` of so many times at once that their table has about ``_CELLS`` cells."""
    step = max(1, _CELLS // width)

    def some(x: Floats) -> tuple[Floats, Floats]:
        parts = [levels(x[start : start + step]) for start in range(0, len(x), step)]
        return np.concatenate([below for below, _ in parts]), np.concatenate([above for _, above in parts])

    return some
