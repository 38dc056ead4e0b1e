"""The equations shown beside the numbers of a closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vflsim.analysis.findings import Formula
from vflsim.analysis.order_formulas import (
    RECURSION,
    cdf_of,
    described,
    exponential_mean,
    needs_recursion,
    order_cdf,
    order_mean,
)
from vflsim.timing.base import exact
from vflsim.timing.law import Law, Point

if TYPE_CHECKING:
    import sympy

_MOST_PARTS = 16
"""The most kinds of clients whose cdf is written out."""
Groups = Sequence[tuple[Law, int]]
"""The kinds of times, and the number of times of each kind."""


def round_formulas(groups: Groups, names: Sequence[str], t: int, service: Law) -> tuple[Formula, ...]:
    """T = C₍ₜ₎ + S: the cdf of the t-th smallest cycle, the cycles' own, and the mean. No groups: T = S."""
    import sympy

    x, duration, step = sympy.Symbol("x", real=True), sympy.Symbol("T"), sympy.Symbol("S")
    if not groups:
        return (Formula(duration, step, f"S: server step, {described(service)} s"),)
    cycle = sympy.Symbol(f"C_({t})")
    cdfs, sizes = _cdfs(len(groups), x), [count for _, count in groups]
    found = []
    if service != Point(0.0):
        found.append(Formula(duration, cycle + step, f"S: server step, {described(service)} s"))
    else:
        found.append(Formula(duration, cycle, "the server steps at once"))
    which = "longest" if t == sum(sizes) else f"{ordinal(t)} of {sum(sizes)}"
    note = f"the {which} cycle" + (f"; {RECURSION}" if needs_recursion(sizes, t) else "")
    found.append(Formula(sympy.Function(f"F_({t})")(x), order_cdf(cdfs, sizes, t), note))
    found += _parts(groups, names, cdfs, x)
    mean = order_mean(groups[0][0], sizes[0], t) if len(groups) == 1 else None
    if mean is None:
        mean = sympy.Integral(1 - sympy.Function(f"F_({t})")(x), (x, 0, sympy.oo))
    extra = exact(service.expectation()) if isinstance(service, Point) else sympy.Function("E")(step)
    found.append(Formula(sympy.Function("E")(duration), mean + extra))
    return tuple(found)


def ratio_formulas(laws: Sequence[Law], t: int) -> tuple[Formula, ...]:
    """E T₍ₜ₎ / E T₍M₎; with numbers where all cycles are alike and a formula has them."""
    import sympy

    n = len(laws)
    ratio = sympy.Function("E")(sympy.Symbol(f"T_({t})")) / sympy.Function("E")(sympy.Symbol(f"T_({n})"))
    alike = exponential_mean(n, t, sympy.Integer(1)) / exponential_mean(n, n, sympy.Integer(1))
    note = "were cycles alike and exponential: (H_M - H_(M-t)) / H_M"
    return Formula(sympy.Symbol("r"), ratio), Formula(sympy.Symbol("r_exponential"), alike, note)


def age_formulas(p: float) -> tuple[Formula, ...]:
    """P(A = a) = p (1 − p)^a and its mean."""
    import sympy

    a, symbol = sympy.Symbol("a", integer=True, nonnegative=True), sympy.Symbol("p", positive=True)
    age = sympy.Symbol("A")
    return (
        Formula(sympy.Symbol("P(A = a)"), symbol * (1 - symbol) ** a, f"p = {p:.6g}"),
        Formula(sympy.Function("E")(age), (1 - symbol) / symbol),
    )


def pooled_formulas(groups: Groups, names: Sequence[str]) -> tuple[Formula, ...]:
    """The time between neighbouring steps of independent cycles (Cox & Smith 1954)."""
    import sympy

    x, y = sympy.symbols("x y", real=True)
    cdfs = _cdfs(len(groups), x)
    rates = [sympy.Symbol(f"lambda_{g}", positive=True) for g in range(1, len(groups) + 1)]
    whole = sympy.Add(*(count * rate for (_, count), rate in zip(groups, rates, strict=True)))
    left = [rate * sympy.Integral(1 - cdf.subs(x, y), (y, x, sympy.oo)) for cdf, rate in zip(cdfs, rates, strict=True)]
    terms = []
    for g, ((_, count), cdf, rate) in enumerate(zip(groups, cdfs, rates, strict=True)):
        others = sympy.Mul(*(r ** (n - (h == g)) for h, ((_, n), r) in enumerate(zip(groups, left, strict=True))))
        terms.append(count * rate * (1 - cdf) * others)
    of = [f"lambda_{g} = {1 / law.expectation():.6g}/s" for g, (law, _) in enumerate(groups, start=1)]
    survival = Formula(sympy.Function("P")(sympy.Gt(sympy.Symbol("T"), x)), sympy.Add(*terms) / whole, ", ".join(of))
    mean = Formula(sympy.Function("E")(sympy.Symbol("T")), 1 / whole)
    return survival, *_parts(groups, names, cdfs, x), mean


def rate_formulas(groups: Sequence[tuple[float, str]]) -> tuple[Formula, ...]:
    """E T = 1/λ, and λ/λ_m steps from one of client m to its next (Little's law)."""
    import sympy

    m = sympy.Symbol("m", integer=True)
    rates = sympy.IndexedBase("lambda")
    whole = sympy.Symbol("lambda", positive=True)
    shown = "; ".join(f"{rate:.6g}/s: {name}" for rate, name in groups[:8]) + ("; …" if len(groups) > 8 else "")
    return (
        Formula(whole, sympy.Sum(rates[m], (m, 1, sympy.Symbol("M"))), f"steps per second by each client: {shown}"),
        Formula(sympy.Function("E")(sympy.Symbol("T")), 1 / whole),
        Formula(sympy.Function("E")(sympy.Symbol("N_m")), whole / rates[m], "steps from one of client m to its next"),
    )


def chain_formulas(clients: int, t: int, rate: float, service: float) -> tuple[Formula, ...]:
    """The Markov chain of the number n that wait when a step ends, and the mean step."""
    import sympy

    n, mu, step = sympy.Symbol("n", integer=True), sympy.Symbol("mu", positive=True), sympy.Symbol("S")
    share = sympy.Function("pi")(n)
    gathered = sympy.harmonic(clients - n) - sympy.harmonic(clients - t)
    mean = step + sympy.Sum(share * gathered / mu, (n, 0, min(t - 1, clients - t)))
    moves = "pi is stationary for n -> max(n - t, 0) + Binomial(M - max(n, t), 1 - exp(-mu S))"
    note = f"M = {clients}, t = {t}, mu = {rate:.6g}/s, S = {service:.6g} s; {moves}"
    return (Formula(sympy.Function("E")(sympy.Symbol("T")), mean, note),)


def ordinal(t: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``4th``."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(t % 10 if t % 100 not in (11, 12, 13) else 0, "th")
    return f"{t}{suffix}"


def _cdfs(groups: int, x: sympy.Symbol) -> list[sympy.Expr]:
    import sympy

    return [sympy.Function(f"F_{g}" if groups > 1 else "F")(x) for g in range(1, groups + 1)]


def _parts(groups: Groups, names: Sequence[str], cdfs: Sequence[sympy.Expr], x: sympy.Symbol) -> list[Formula]:
    """The cdf of every kind of cycle, in full or as a probability."""
    import sympy

    found = []
    for (law, _), name, cdf in list(zip(groups, names, cdfs, strict=True))[:_MOST_PARTS]:
        formula = cdf_of(law, x)
        if formula is None:
            formula = sympy.Function("P")(sympy.Le(sympy.Symbol("C"), x))
        found.append(Formula(cdf, formula, f"{name}: {described(law)} s"))
    if len(groups) > len(found):
        found[-1] = replace(
            found[-1], note=f"{found[-1].note}; {len(groups) - len(found)} more kinds are alike in form"
        )
    return found
