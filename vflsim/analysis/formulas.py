"""The equations shown beside the numbers of a closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vflsim.analysis.findings import Formula
from vflsim.errors import NoClosedFormError
from vflsim.timing.delays import Exponential, ShiftedExponential, Uniform
from vflsim.timing.delays.base import Delay, OfDelay, exact, sympy
from vflsim.timing.delays.composite import Sum
from vflsim.timing.delays.sums import SumLaw
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import MixtureLaw

_MOST_GROUPS = 3
"""The most kinds of times in an explicit sum; with more, the recursion is shown."""


def exponential_mean(n: int, t: int, mean: sympy.Expr) -> sympy.Expr:
    """Give E X₍ₜ₎ of n alike exponential times: mean · (H_n − H_{n−t}), H the harmonic numbers (Rényi 1953)."""
    return mean * (_harmonic(n) - _harmonic(n - t))


def _harmonic(n: int) -> sympy.Expr:
    """Give H_n as a symbol that ``doit`` turns into a fraction; 0 for n = 0."""
    return sympy.harmonic(n, evaluate=False) if n else sympy.Integer(0)


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
    if isinstance(delay, Uniform):  # low + (high − low) · Beta(t, n + 1 − t)
        low, high = exact(delay.low), exact(delay.high)
        return shift + scale * (low + (high - low) * sympy.Rational(t, n + 1))
    return None


def order_cdf(cdfs: Sequence[sympy.Expr], sizes: Sequence[int], t: int) -> sympy.Expr:
    """Give P(X₍ₜ₎ ≤ x) from the cdfs F_g(x) of groups of alike times, and how many of each there are.

    Of more than three groups the sum over their numbers is written as P(n, j), j of n times being ≤ x: ``RECURSION``.
    """
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


Groups = Sequence[tuple[Law, int]]
"""The kinds of times, and the number of times of each kind."""


def round_formulas(groups: Groups, names: Sequence[str], t: int, service: Law) -> tuple[Formula, ...]:
    """T = C₍ₜ₎ + S: the cdf of the t-th smallest cycle, the cycles' own, and the mean. No groups: T = S."""
    x, duration, step = sympy.Symbol("x", real=True), sympy.Symbol("T"), sympy.Symbol("S")
    if not groups:
        return (Formula(duration, step, f"S: server step, {described(service)} s"),)
    cycle = sympy.Symbol(f"C_({t})")
    cdfs, sizes = cdfs_of(len(groups), x), [count for _, count in groups]
    formulas = []
    if service != Point(0.0):
        formulas.append(Formula(duration, cycle + step, f"S: server step, {described(service)} s"))
    else:
        formulas.append(Formula(duration, cycle, "the server steps at once"))
    which = "longest" if t == sum(sizes) else f"{ordinal(t)} of {sum(sizes)}"
    note = f"the {which} cycle" + (f"; {RECURSION}" if needs_recursion(sizes, t) else "")
    formulas.append(Formula(sympy.Function(f"F_({t})")(x), order_cdf(cdfs, sizes, t), note))
    formulas += kind_formulas(groups, names, cdfs, x)
    mean = order_mean(groups[0][0], sizes[0], t) if len(groups) == 1 else None
    if mean is None:
        mean = sympy.Integral(1 - sympy.Function(f"F_({t})")(x), (x, 0, sympy.oo))
    extra = exact(service.expectation()) if isinstance(service, Point) else sympy.Function("E")(step)
    formulas.append(Formula(sympy.Function("E")(duration), mean + extra))
    return tuple(formulas)


def ratio_formulas(laws: Sequence[Law], t: int) -> tuple[Formula, ...]:
    """E T₍ₜ₎ / E T₍M₎; with numbers where all cycles are alike and a formula has them."""
    n = len(laws)
    ratio = sympy.Function("E")(sympy.Symbol(f"T_({t})")) / sympy.Function("E")(sympy.Symbol(f"T_({n})"))
    alike = exponential_mean(n, t, sympy.Integer(1)) / exponential_mean(n, n, sympy.Integer(1))
    note = "were cycles alike and exponential: (H_M - H_(M-t)) / H_M"
    return Formula(sympy.Symbol("r"), ratio), Formula(sympy.Symbol("r_exponential"), alike, note)


def age_formulas(p: float) -> tuple[Formula, ...]:
    """P(A = a) = p (1 − p)^a and its mean."""
    a, symbol = sympy.Symbol("a", integer=True, nonnegative=True), sympy.Symbol("p", positive=True)
    age = sympy.Symbol("A")
    return (
        Formula(sympy.Symbol("P(A = a)"), symbol * (1 - symbol) ** a, f"p = {p:.6g}"),
        Formula(sympy.Function("E")(age), (1 - symbol) / symbol),
    )


def pooled_formulas(groups: Groups, names: Sequence[str]) -> tuple[Formula, ...]:
    """The time between neighbouring steps of independent cycles (Cox & Smith 1954)."""
    x, y = sympy.symbols("x y", real=True)
    cdfs = cdfs_of(len(groups), x)
    rates = [sympy.Symbol(f"lambda_{g}", positive=True) for g in range(1, len(groups) + 1)]
    whole = sympy.Add(*(count * rate for (_, count), rate in zip(groups, rates, strict=True)))
    tails = [rate * sympy.Integral(1 - cdf.subs(x, y), (y, x, sympy.oo)) for cdf, rate in zip(cdfs, rates, strict=True)]
    terms = []
    for g, ((_, count), cdf, rate) in enumerate(zip(groups, cdfs, rates, strict=True)):
        others = sympy.Mul(*(r ** (n - (h == g)) for h, ((_, n), r) in enumerate(zip(groups, tails, strict=True))))
        terms.append(count * rate * (1 - cdf) * others)
    of = [f"lambda_{g} = {1 / law.expectation():.6g}/s" for g, (law, _) in enumerate(groups, start=1)]
    survival = Formula(sympy.Function("P")(sympy.Gt(sympy.Symbol("T"), x)), sympy.Add(*terms) / whole, ", ".join(of))
    mean = Formula(sympy.Function("E")(sympy.Symbol("T")), 1 / whole)
    return survival, *kind_formulas(groups, names, cdfs, x), mean


def rate_formulas(groups: Sequence[tuple[float, str]]) -> tuple[Formula, ...]:
    """E T = 1/λ, and λ/λ_m steps from one of client m to its next (Little's law)."""
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


def cdfs_of(groups: int, x: sympy.Symbol, letter: str = "F") -> list[sympy.Expr]:
    """Give the names of the cdfs of so many kinds of times, at ``x``."""
    return [sympy.Function(f"{letter}_{g}" if groups > 1 else letter)(x) for g in range(1, groups + 1)]


def kind_formulas(
    groups: Groups, names: Sequence[str], cdfs: Sequence[sympy.Expr], x: sympy.Symbol, time: str = "C", most: int = 16
) -> list[Formula]:
    """The cdf of every kind of times, such as cycles C, in full or as a probability: of the first ``most`` kinds."""
    formulas = []
    for (law, _), name, cdf in list(zip(groups, names, cdfs, strict=True))[:most]:
        formula = cdf_of(law, x)
        if formula is None:
            formula = sympy.Function("P")(sympy.Le(sympy.Symbol(time), x))
        formulas.append(Formula(cdf, formula, f"{name}: {described(law)} s"))
    if len(groups) > len(formulas):
        formulas[-1] = replace(
            formulas[-1], note=f"{formulas[-1].note}; {len(groups) - len(formulas)} more kinds are alike in form"
        )
    return formulas
