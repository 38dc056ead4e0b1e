"""Delays made of other delays: mixtures, sums, maxima. A draw consumes the uniforms of every part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from typing_extensions import override

from vflsim.timing.base import Delay, Floats, columns, exact, floats, total
from vflsim.timing.branches import Branch, branches
from vflsim.timing.numeric import moments, smallest
from vflsim.timing.sums import Atoms
from vflsim.timing.symbolic import sum_of
from vflsim.vocabulary import NonNegativeNumber

if TYPE_CHECKING:
    import sympy

    from vflsim.timing.delays import AnyDelay

MAX_DEPTH = 6
MAX_UNIFORMS = 256


class Composite(Delay):
    """Delays of which one is made."""

    parts: Annotated[tuple[AnyDelay, ...], Field(min_length=1, max_length=64)]
    """The delays it is made of, each of any kind; independent of one another."""

    @override
    def _check(self) -> None:
        if depth(self) > MAX_DEPTH:
            raise ValueError(f"delays are nested {depth(self)} levels deep; allowed: at most {MAX_DEPTH}")
        if self.uniforms > MAX_UNIFORMS:
            raise ValueError(f"a draw would consume {self.uniforms} uniforms; allowed: at most {MAX_UNIFORMS}")
        for part in self.parts:
            if part.in_time:
                raise ValueError(
                    f"a {part.kind} delay depends on time and cannot be part of another delay; "
                    "allowed: every other kind; remedy: make the bursts the outermost delay, with composite states"
                )

    @property
    @override
    def uniforms(self) -> int:
        return sum(part.uniforms for part in self.parts)

    @override
    def _inverse(self, u: Floats) -> Floats:
        return smallest(self, u)

    def _drawn(self, u: Floats, start: int = 0) -> list[Floats]:
        """The draws of the parts, from their own columns of ``u`` from ``start`` on."""
        if self.uniforms == 1:
            return [part.sample(u) for part in self.parts]
        drawn = []
        for part in self.parts:
            drawn.append(part.sample(columns(u, start, part.uniforms)))
            start += part.uniforms
        return drawn


@final
class Mixture(Composite):
    """One of several delays, chosen by chance for every draw."""

    kind: Literal["mixture"] = "mixture"
    weights: Annotated[tuple[NonNegativeNumber, ...], Field(min_length=1, max_length=64)]
    """How likely each part is, relative to the others, in the same order."""

    @override
    def _check(self) -> None:
        super()._check()
        if len(self.weights) != len(self.parts):
            raise ValueError(f"{len(self.weights)} weights for {len(self.parts)} parts; allowed: as many as parts")
        if not 0 < total(self.weights) < math.inf:
            raise ValueError(f"the weights sum to {total(self.weights):g}; allowed: a finite sum above 0")

    @property
    @override
    def uniforms(self) -> int:
        return 1 + super().uniforms

    @override
    def pieces(self) -> list[tuple[float, Sequence[Delay]]]:
        return [(weight, (part,)) for weight, part in self._weighted]

    @cached_property
    def _weighted(self) -> list[tuple[float, Delay]]:
        """Probability of each part that can come."""
        whole = total(self.weights)
        return [(weight / whole, part) for weight, part in zip(self.weights, self.parts, strict=True) if weight > 0]

    @override
    def expectation(self) -> float:
        return total(weight * part.expectation() for weight, part in self._weighted)

    @override
    def variance(self) -> float:
        centre = self.expectation()
        return total(w * (part.variance() + (part.expectation() - centre) ** 2) for w, part in self._weighted)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        level = np.asarray(sum(weight * part.cdf(x) for weight, part in self._weighted))
        return np.where(floats(x) >= self.support()[1], 1.0, np.minimum(level, 1.0))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        return np.minimum(sum(weight * part.survival(x) for weight, part in self._weighted), 1.0)

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.asarray(sum(weight * part.density(x) for weight, part in self._weighted))

    @override
    def atoms(self) -> tuple[Floats, Floats]:
        found = [(weight, *part.atoms()) for weight, part in self._weighted]
        merged = Atoms.merged(
            np.concatenate([values for _, values, _ in found]),
            np.concatenate([weight * masses for weight, _, masses in found]),
        )
        return merged.values, merged.masses

    @override
    def breaks(self) -> Floats:
        return np.unique(np.concatenate([part.breaks() for _, part in self._weighted]))

    @override
    def support(self) -> tuple[float, float]:
        shortest, longest = zip(*(part.support() for _, part in self._weighted), strict=True)
        return min(shortest), max(longest)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        whole = sum(map(exact, self.weights))
        pairs = zip(self.weights, self.parts, strict=True)
        return sum(exact(weight) / whole * part.sympy(x) for weight, part in pairs if weight > 0)

    @override
    def sample(self, u: Floats) -> Floats:
        whole = total(self.weights)
        edges = np.cumsum(np.array(self.weights) / whole)[:-1]
        # The last part that can come takes what rounding leaves.
        edges[np.flatnonzero(self.weights)[-1] :] = math.inf
        choice = np.searchsorted(edges, columns(u, 0, 1), side="right")
        drawn = np.stack(self._drawn(u, start=1))
        return np.asarray(np.take_along_axis(drawn, choice[None], axis=0)[0])


@final
class Sum(Composite):
    """Several delays, one after the other."""

    kind: Literal["sum"] = "sum"

    @override
    def pieces(self) -> list[tuple[float, Sequence[Delay]]]:
        return [(1.0, self.parts)]

    @cached_property
    def _branches(self) -> tuple[Branch, ...]:
        return branches(self.parts)

    @override
    def expectation(self) -> float:
        return total(part.expectation() for part in self.parts)

    @override
    def variance(self) -> float:
        return total(part.variance() for part in self.parts)

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        level = np.asarray(sum(branch.weight * branch.cdf(x) for branch in self._branches))
        return np.where(floats(x) >= self.support()[1], 1.0, np.clip(level, 0.0, 1.0))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        level = np.asarray(sum(branch.weight * branch.survival(x) for branch in self._branches))
        return np.where(floats(x) >= self.support()[1], 0.0, np.clip(level, 0.0, 1.0))

    @override
    def density(self, x: ArrayLike) -> Floats:
        return np.asarray(sum(branch.weight * branch.density(x) for branch in self._branches))

    @override
    def atoms(self) -> tuple[Floats, Floats]:
        found = [branch for branch in self._branches if branch.discrete]
        if not found:
            return super().atoms()
        merged = Atoms.merged(
            np.concatenate([branch.atoms.values for branch in found]),
            np.concatenate([branch.weight * branch.atoms.masses for branch in found]),
        )
        return merged.values, merged.masses

    @override
    def breaks(self) -> Floats:
        return np.unique(np.concatenate([branch.breaks() for branch in self._branches]))

    @override
    def support(self) -> tuple[float, float]:
        shortest = longest = 0.0
        for part in self.parts:  # in the order in which draws are added
            shortest, longest = shortest + part.support()[0], longest + part.support()[1]
        return shortest, longest

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return sum_of(self.parts, x)

    @override
    def sample(self, u: Floats) -> Floats:
        first, *rest = self._drawn(u)
        return sum(rest, start=first)  # in their order: the last bit depends on it


@final
class Maximum(Composite):
    """The longest of several delays that run at the same time."""

    kind: Literal["maximum"] = "maximum"

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Mean and variance."""
        shortest, longest = self.support()
        if shortest == longest:
            return shortest, 0.0
        mean, variance = moments(self)
        heavy = any(math.isinf(part.variance()) for part in self.parts)
        return mean, math.inf if heavy else variance

    @override
    def expectation(self) -> float:
        return self._moments[0]

    @override
    def variance(self) -> float:
        return self._moments[1]

    @override
    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(math.prod(part.cdf(x) for part in self.parts))

    @override
    def survival(self, x: ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(-np.expm1(sum(np.log1p(-part.survival(x)) for part in self.parts)))

    @override
    def density(self, x: ArrayLike) -> Floats:
        cdfs = [part.cdf(x) for part in self.parts]
        return np.asarray(
            sum(
                part.density(x) * math.prod(cdfs[:place] + cdfs[place + 1 :], start=np.ones(np.shape(x)))
                for place, part in enumerate(self.parts)
            )
        )

    @override
    def atoms(self) -> tuple[Floats, Floats]:
        found = [part.atoms() for part in self.parts]
        values = np.unique(np.concatenate([own for own, _ in found]))
        before = np.ones(len(values))
        for part, (own, masses) in zip(self.parts, found, strict=True):
            jump = np.zeros(len(values))
            jump[np.searchsorted(values, own)] = masses
            before *= np.maximum(part.cdf(values) - jump, 0.0)
        masses = self.cdf(values) - before
        return values[masses > 0], masses[masses > 0]

    @override
    def breaks(self) -> Floats:
        points = np.unique(np.concatenate([part.breaks() for part in self.parts]))
        return points[points >= self.support()[0]]

    @override
    def support(self) -> tuple[float, float]:
        shortest, longest = zip(*(part.support() for part in self.parts), strict=True)
        return max(shortest), max(longest)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return math.prod(part.sympy(x) for part in self.parts)

    @override
    def sample(self, u: Floats) -> Floats:
        return np.asarray(np.maximum.reduce(self._drawn(u)))


def depth(delay: Delay) -> int:
    """How many levels of composite delays there are."""
    return 1 + max(map(depth, delay.parts)) if isinstance(delay, Composite) else 0
