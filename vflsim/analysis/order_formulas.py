"""Order statistics in sympy: closed forms for equal laws, the formulas behind the numbers for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflsim.errors import NoClosedFormError
from vflsim.timing.affine import OfDelay
from vflsim.timing.base import Delay, exact
from vflsim.timing.composite import Sum
from vflsim.timing.delays import Exponential, ShiftedExponential, Uniform
from vflsim.timing.law import Law, MixtureLaw, Point
from vflsim.timing.sums import SumLaw

if TYPE_CHECKING:
    import sympy

_MOST_GROUPS = 3
"""The most kinds of times in an explicit sum; with more, the recursion is shown."""


def exponential_mean(n: int, t: int, mean: sympy.Expr | None = None) -> sympy.Expr:
    """Give E X₍ₜ₎ of n alike exponential times: mean · (H_n − H_{n−t}), H the harmonic numbers (Rényi 1953)."""
    import sympy

    mu = sympy.Symbol("mu", positive=True) if mean is None else mean
    return mu * (_harmonic(n) - _harmonic(n - t))


def _harmonic(n: int) -> sympy.Expr:
    """Give H_n as a symbol that ``doit`` turns into a fraction; 0 for n = 0."""
    import sympy

    return sympy.harmonic(n, evaluate=False) if n else sympy.Integer(0)


def uniform_mean(n: int, t: int, low: sympy.Expr, high: sympy.Expr) -> sympy.Expr:
    """Give E X₍ₜ₎ of n alike uniform times: X₍ₜ₎ is low + (high − low) · Beta(t, n + 1 − t)."""
    import sympy

    return low + (high - low) * sympy.Rational(t, n + 1)


def order_mean(law: Law, n: int, t: int) -> sympy.Expr | None:
    """Give E X₍ₜ₎ of n alike times in numbers, where there is a formula without an integral."""
    if isinstance(law, Point):
        return exact(law.value)
    if not isinstance(law, OfDelay):
        return None
    delay, shift, scale = law.delay, exact(law.shift), exact(law.scale)
    if isinstance(delay, Exponential):
        return shift + exponential_mean(n, t, scale * exact(delay.mean))
    if isinstance(delay, ShiftedExponential):
        return shift + scale * exact(delay.shift) + exponential_mean(n, t, scale * exact(delay.mean))
    if isinstance(delay, Uniform):
        return shift + scale * uniform_mean(n, t, exact(delay.low), exact(delay.high))
    return None


def order_cdf(cdfs: Sequence[sympy.Expr], sizes: Sequence[int], t: int) -> sympy.Expr:
    """Give P(X₍ₜ₎ ≤ x) from the cdfs F_g(x) of groups of alike times, and how many of each there are.

    Of more than three groups the sum over their numbers is written as P(n, j), j of n times being ≤ x: ``RECURSION``.
    """
    import sympy

    n = sum(sizes)
    if t == n:
        return sympy.Mul(*(cdf**size for cdf, size in zip(cdfs, sizes, strict=True)))
    if t == 1:
        return 1 - sympy.Mul(*((1 - cdf) ** size for cdf, size in zip(cdfs, sizes, strict=True)))
    if len(cdfs) > _MOST_GROUPS:
        j = sympy.Symbol("j", integer=True)
        return sympy.Sum(sympy.Function("P")(n, j), (j, t, n))
    js = [sympy.Symbol(f"j_{g}" if len(cdfs) > 1 else "j", integer=True) for g in range(1, len(cdfs) + 1)]
    terms = [
        sympy.binomial(size, j) * cdf**j * (1 - cdf) ** (size - j) for size, j, cdf in zip(sizes, js, cdfs, strict=True)
    ]
    if len(cdfs) == 1:
        return sympy.Sum(terms[0], (js[0], t, n))
    counted = sympy.Piecewise((sympy.Mul(*terms), sum(js) >= t), (0, True))
    return sympy.Sum(counted, *((j, 0, size) for j, size in zip(js, sizes, strict=True)))


RECURSION = "P(m, j) = P(m-1, j) (1 - F_m) + P(m-1, j-1) F_m client by client, P(0, 0) = 1"


def needs_recursion(sizes: Sequence[int], t: int) -> bool:
    """Tell whether ``order_cdf`` writes P(n, j)."""
    return len(sizes) > _MOST_GROUPS and 1 < t < sum(sizes)


def cdf_of(law: Law, x: sympy.Symbol) -> sympy.Expr | None:
    """Give the cdf at ``x`` in full; None where it has no formula."""
    import sympy

    if isinstance(law, Point):
        return sympy.Piecewise((0, x < exact(law.value)), (1, True))
    if not isinstance(law, OfDelay):
        return None
    place = sympy.Symbol("place", real=True)
    try:
        formula = law.delay.sympy(place)
    except NoClosedFormError:
        return None
    return formula.subs(place, (x - exact(law.shift)) / exact(law.scale))


def described(law: Law) -> str:
    """Describe a law in words: ``0.01 + exponential(mean 2)``."""
    if isinstance(law, Point):
        return f"{law.value:.6g}"
    if isinstance(law, OfDelay):
        scaled = f"{law.scale:.6g} × " if law.scale != 1 else ""
        return (f"{law.shift:.6g} + " if law.shift else "") + scaled + _delay(law.delay)
    if isinstance(law, SumLaw):
        return " + ".join([*([f"{law.constant:.6g}"] if law.constant else []), *map(described, law.parts)])
    if isinstance(law, MixtureLaw):
        return " or ".join(f"{described(part)} ({weight:.3g})" for weight, part in law.parts)
    return type(law).__name__


def _delay(delay: Delay) -> str:
    if isinstance(delay, Sum):
        return " + ".join(map(_delay, delay.parts))
    fields = delay.model_dump(exclude_none=True, exclude={"kind"})
    return f"{delay.kind}({', '.join(f'{key} {_value(value)}' for key, value in fields.items())})"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
