"""Delays made of other delays: mixtures, sums, maxima. A draw consumes the uniforms of every part."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from vflsim.timing.delays.affine import OfDelay
from vflsim.timing.delays.base import Delay, Derived, columns, exact, sympy
from vflsim.timing.delays.sum_formulas import formula_of_sum
from vflsim.timing.delays.sums import total
from vflsim.timing.floats import Floats, exact_sum
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import MixtureLaw, maximum
from vflsim.vocabulary import NonNegativeNumber

if TYPE_CHECKING:
    from vflsim.timing.delays import AnyDelay

MAX_DEPTH = 6
MAX_UNIFORMS = 256


class Composite(Derived):
    """A delay made of other delays."""

    parts: Annotated[tuple[AnyDelay, ...], Field(min_length=1, max_length=64)]
    """The component delays, each of any kind, mutually independent."""

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

    def _drawn(self, u: Floats, start: int = 0) -> list[Floats]:
        """Draw from the parts, from their own columns of ``u`` from ``start`` on."""
        if self.uniforms == 1:
            return [part.sample(u) for part in self.parts]
        drawn = []
        for part in self.parts:
            drawn.append(part.sample(columns(u, start, part.uniforms)))
            start += part.uniforms
        return drawn


@final
class Mixture(Composite):
    """One of several delays, chosen by chance for every draw.

    Example: ``{kind: mixture, weights: [9, 1], parts: [20 ms, {kind: exponential, mean: 1 s}]}``
    """

    kind: Literal["mixture"] = "mixture"
    weights: Annotated[tuple[NonNegativeNumber, ...], Field(min_length=1, max_length=64)]
    """How likely each part is, relative to the others, in the same order."""

    @override
    def _check(self) -> None:
        super()._check()
        if len(self.weights) != len(self.parts):
            raise ValueError(f"{len(self.weights)} weights for {len(self.parts)} parts; allowed: as many as parts")
        if not 0 < exact_sum(self.weights) < math.inf:
            raise ValueError(f"the weights sum to {exact_sum(self.weights):g}; allowed: a finite sum above 0")

    @property
    @override
    def uniforms(self) -> int:
        return 1 + super().uniforms

    @cached_property
    @override
    def law(self) -> Law:
        """That of the parts of positive weight, with their probabilities."""
        whole, pairs = exact_sum(self.weights), zip(self.weights, self.parts, strict=True)
        return MixtureLaw(tuple((weight / whole, part) for weight, part in pairs if weight > 0))

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        whole = sum(map(exact, self.weights))
        pairs = zip(self.weights, self.parts, strict=True)
        return sum(exact(weight) / whole * part.sympy(x) for weight, part in pairs if weight > 0)

    @override
    def sample(self, u: Floats) -> Floats:
        whole = exact_sum(self.weights)
        edges = np.cumsum(np.array(self.weights) / whole)[:-1]
        # The last part with a weight takes the rest that rounding leaves.
        edges[np.flatnonzero(self.weights)[-1] :] = math.inf
        choice = np.searchsorted(edges, columns(u, 0, 1), side="right")
        drawn = np.stack(self._drawn(u, start=1))
        return np.asarray(np.take_along_axis(drawn, choice[None], axis=0)[0])


@final
class Sum(Composite):
    """Several delays, one after the other.

    Example: ``{kind: sum, parts: [20 ms, {kind: gamma, shape: 2, mean: 80 ms}]}``
    """

    kind: Literal["sum"] = "sum"

    @override
    def summands(self) -> tuple[Law, ...]:
        return tuple(law for part in self.parts for law in part.summands())

    @cached_property
    @override
    def law(self) -> Law:
        return total(OfDelay(part) for part in self.parts)

    @override
    def expectation(self) -> float:
        return exact_sum(part.expectation() for part in self.parts)

    @override
    def variance(self) -> float:
        return exact_sum(part.variance() for part in self.parts)

    @override
    def error(self) -> float:
        return exact_sum(part.error() for part in self.parts)

    @property
    @override
    def support(self) -> tuple[float, float]:
        shortest = longest = 0.0
        for part in self.parts:  # in the order in which draws are added
            shortest, longest = shortest + part.support[0], longest + part.support[1]
        return shortest, longest

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return formula_of_sum(self.parts, x)

    @override
    def sample(self, u: Floats) -> Floats:
        first, *rest = self._drawn(u)
        return sum(rest, start=first)  # in their order: the last bit depends on it


@final
class Maximum(Composite):
    """The longest of several delays that run at the same time.

    Example: ``{kind: maximum, parts: [{kind: exponential, mean: 50 ms}, {kind: uniform, low: 20 ms, high: 90
    ms}]}``
    """

    kind: Literal["maximum"] = "maximum"

    @cached_property
    @override
    def law(self) -> Law:
        return maximum(self.parts)

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return math.prod(part.sympy(x) for part in self.parts)

    @override
    def sample(self, u: Floats) -> Floats:
        return np.asarray(np.maximum.reduce(self._drawn(u)))


def depth(delay: Delay) -> int:
    """How many levels of composite delays there are."""
    return 1 + max(map(depth, delay.parts)) if isinstance(delay, Composite) else 0
