"""Delays made of other delays: mixtures, sums, maxima. A draw consumes the uniforms of every part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from vflsim.errors import NoClosedFormError
from vflsim.timing.delays.base import Delay, Derived, OfDelay, columns, exact, from_zero, sympy
from vflsim.timing.delays.basic import Constant, Exponential, Uniform
from vflsim.timing.delays.sums import total
from vflsim.timing.floats import Floats, exact_sum
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw, maximum
from vflsim.vocabulary import Fraction01, NonNegativeNumber, PositiveSeconds

if TYPE_CHECKING:
    from vflsim.timing.delays import AnyDelay

MAX_DEPTH = 6
MAX_UNIFORMS = 256
_SUM_TOLERANCE = 1e-9


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


@final
class HyperExponential(Derived):
    """One of several exponential delays, chosen by chance: more variable than an exponential one of the same mean.

    Example: ``{kind: hyper_exponential, probabilities: [0.9, 0.1], means: [50 ms, 1 s]}``
    """

    kind: Literal["hyper_exponential"] = "hyper_exponential"
    probabilities: Annotated[tuple[Fraction01, ...], Field(min_length=1, max_length=64)]
    """The probability of each of them; they sum to 1."""
    means: Annotated[tuple[PositiveSeconds, ...], Field(min_length=1, max_length=64)]
    """Mean of each, in the same order."""

    @override
    def _check(self) -> None:
        if len(self.probabilities) != len(self.means):
            raise ValueError(
                f"{len(self.probabilities)} probabilities for {len(self.means)} means; allowed: as many as means"
            )
        whole = exact_sum(self.probabilities)
        if abs(whole - 1) > _SUM_TOLERANCE:
            raise ValueError(f"the probabilities sum to {whole:.10g}; allowed: a sum of 1")

    @property
    @override
    def uniforms(self) -> int:
        return 2

    def _shares(self) -> list[tuple[float, float]]:
        """Give probability and mean of each exponential, without those that never come."""
        whole = exact_sum(self.probabilities)
        return [(p / whole, mean) for p, mean in zip(self.probabilities, self.means, strict=True) if p > 0]

    @cached_property
    @override
    def law(self) -> Law:
        return MixtureLaw(tuple((p, Exponential(mean=mean)) for p, mean in self._shares()))

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        whole = sum(map(exact, self.probabilities))
        parts = zip(self.probabilities, self.means, strict=True)
        return from_zero(x, 1 - sum(exact(p) / whole * sympy.exp(-x / exact(mean)) for p, mean in parts))

    @override
    def sample(self, u: Floats) -> Floats:
        shares, means = zip(*self._shares(), strict=True)
        phase = np.searchsorted(np.cumsum(shares[:-1]), columns(u, 0, 1), side="right")
        return -np.take(means, phase) * np.log1p(-columns(u, 1, 1))


def depth(delay: Delay) -> int:
    """How many levels of composite delays there are."""
    return 1 + max(map(depth, delay.parts)) if isinstance(delay, Composite) else 0


# --- the formula of a sum ---------------------------------------------------------------------------------------------


MAX_TERMS = 64
Term: TypeAlias = tuple[Any, Any]
"""A shift c and a rational function f of s: e^(−cs) f(s), of which the Laplace–Stieltjes transform is a sum."""


def formula_of_sum(parts: Sequence[Law], x: sympy.Symbol) -> sympy.Expr:
    """Give the cdf at ``x`` of the sum of independent times: exact for constants, observed values, exponentials,
    uniforms, and mixtures of them. Raises NoClosedFormError where none is known.
    """
    s, total = sympy.Symbol("s"), sympy.Integer(0)
    factors = [list(terms(part, s)) for part in parts]
    if (count := math.prod(map(len, factors))) > MAX_TERMS:
        what = f"the formula of this sum would have {count} terms"
        raise NoClosedFormError(what, "sum", f"at most {MAX_TERMS}", _NUMBERS)
    for shift, transform in _products(factors):
        total += sympy.Piecewise((0, x - shift < 0), (_inverse(transform / s, s, x - shift), True))
    return total


def terms(part: Law, s: sympy.Symbol) -> Iterator[Term]:
    """Give the terms of a time's transform."""
    summands = part.summands()
    if isinstance(part, Point | Constant):
        yield exact(part.value), sympy.Integer(1)
    elif isinstance(part, Exponential):
        yield sympy.Integer(0), 1 / (1 + exact(part.mean) * s)
    elif isinstance(part, Uniform):
        low, high = exact(part.low), exact(part.high)
        yield low, 1 / (high - low) / s
        yield high, -1 / (high - low) / s
    elif summands[0] is not part:
        yield from _products([list(terms(each, s)) for each in summands])
    elif isinstance(part, Derived) and isinstance(part.law, MixtureLaw):
        for weight, inner in part.law.parts:
            yield from ((shift, exact(weight) * transform) for shift, transform in terms(inner, s))
    elif abs((atoms := part.atoms()).mass - 1) < 1e-12:
        yield from zip(map(exact, atoms.values.tolist()), map(exact, atoms.masses.tolist()), strict=True)
    else:
        kind = part.kind if isinstance(part, Delay) else type(part).__name__
        what, allowed = (
            f"the cdf of a sum with a {kind} part has no closed form here",
            "constant, observed, exponential",
        )
        raise NoClosedFormError(what, "sum", f"{allowed} and uniform parts, and mixtures and sums of them", _NUMBERS)


_NUMBERS = "use its numbers: cdf and quantile"


def _products(factors: Sequence[list[Term]]) -> Iterator[Term]:
    for choice in product(*factors):
        shifts, transforms = zip(*choice, strict=True)
        yield sum(shifts), sympy.prod(transforms)


def _inverse(transform: sympy.Expr, s: sympy.Symbol, x: sympy.Expr) -> sympy.Expr:
    """Give the inverse Laplace transform of a rational function at ``x``: the sum of residues at its poles."""
    total = sympy.Integer(0)
    for pole, order in sympy.roots(sympy.denom(sympy.together(transform)), s).items():
        rest = sympy.cancel(transform * (s - pole) ** order) * sympy.exp(s * x)
        total += sympy.diff(rest, s, order - 1).subs(s, pole) / math.factorial(order - 1)
    return total
