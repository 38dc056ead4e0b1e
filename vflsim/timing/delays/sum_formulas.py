"""The cdf of a sum as a formula: exact for constants, observed values, exponentials, uniforms, and mixtures of them.

The Laplace–Stieltjes transform of such a sum is a combination of terms e^(−cs) Π 1 / (1 + mean·s) Π 1 / s, whose
inverse follows from partial fractions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import factorial, prod

from vflsim.errors import NoClosedFormError
from vflsim.timing.delays.base import Delay, Derived, exact, sympy
from vflsim.timing.delays.basic import Constant, Exponential, Uniform
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw

MAX_TERMS = 64


@dataclass(frozen=True)
class Term:
    """weight · e^(−shift·s) · Π 1 / (1 + mean·s) · s^(−powers)."""

    weight: sympy.Rational
    shift: sympy.Rational
    means: tuple[sympy.Rational, ...] = ()
    powers: int = 0

    def __mul__(self, other: Term) -> Term:
        return Term(
            self.weight * other.weight,
            self.shift + other.shift,
            self.means + other.means,
            self.powers + other.powers,
        )


def formula_of_sum(parts: Sequence[Law], x: sympy.Symbol) -> sympy.Expr:
    """Give the cdf at ``x`` of the sum of independent times. Raises NoClosedFormError where none is known."""
    factors = [list(terms(part)) for part in parts]
    if prod(map(len, factors)) > MAX_TERMS:
        raise NoClosedFormError(
            f"the formula of this sum would have {prod(map(len, factors))} terms",
            "sum",
            f"at most {MAX_TERMS}",
            "use its numbers: cdf and quantile",
        )
    total = sympy.Integer(0)
    for term in _products(factors):
        since = x - term.shift
        total += sympy.Piecewise((0, since < 0), (term.weight * _ramp(term, since), True))
    return total


def terms(part: Law) -> Iterator[Term]:
    """Give the terms of a time's transform."""
    one, zero = sympy.Integer(1), sympy.Integer(0)
    summands = part.summands()
    if isinstance(part, Point | Constant):
        yield Term(one, exact(part.value))
    elif isinstance(part, Exponential):
        yield Term(one, zero, (exact(part.mean),))
    elif isinstance(part, Uniform):
        low, high = exact(part.low), exact(part.high)
        yield Term(1 / (high - low), low, (), 1)
        yield Term(-1 / (high - low), high, (), 1)
    elif summands[0] is not part:
        yield from _products([list(terms(each)) for each in summands])
    elif isinstance(part, Derived) and isinstance(part.law, MixtureLaw):
        for weight, inner in part.law.parts:
            yield from (Term(exact(weight), zero) * term for term in terms(inner))
    elif abs((atoms := part.atoms()).mass - 1) < 1e-12:
        for value, mass in zip(atoms.values.tolist(), atoms.masses.tolist(), strict=True):
            yield Term(exact(mass), exact(value))
    else:
        kind = part.kind if isinstance(part, Delay) else type(part).__name__
        raise NoClosedFormError(
            f"the cdf of a sum with a {kind} part has no closed form here",
            "sum",
            "constant, observed, exponential and uniform parts, and mixtures and sums of them",
            "use its numbers: cdf and quantile",
        )


def _products(factors: Sequence[list[Term]]) -> Iterator[Term]:
    start = Term(sympy.Integer(1), sympy.Integer(0))
    return (prod(choice, start=start) for choice in product(*factors))


def _ramp(term: Term, x: sympy.Expr) -> sympy.Expr:
    """Give the inverse Laplace transform of Π 1 / (1 + mean·s) / s^(powers + 1), by partial fractions."""
    s = sympy.Symbol("s")
    poles = {-1 / mean: count for mean, count in Counter(term.means).items()}
    poles[sympy.Integer(0)] = term.powers + 1
    scale = prod((1 / mean for mean in term.means), start=sympy.Integer(1))
    total = sympy.Integer(0)
    for pole, count in poles.items():
        rest = scale / prod((s - other) ** order for other, order in poles.items() if other != pole)
        for order in range(1, count + 1):
            derived = sympy.diff(rest, s, count - order) if count > order else rest
            residue = derived.subs(s, pole) / factorial(count - order)
            total += residue * x ** (order - 1) / factorial(order - 1) * sympy.exp(pole * x)
    return total
