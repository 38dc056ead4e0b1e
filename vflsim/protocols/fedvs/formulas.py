"""The equations of coded rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflsim.analysis.findings import Formula
from vflsim.analysis.formulas import (
    RECURSION,
    Groups,
    cdf_of,
    described,
    needs_recursion,
    order_cdf,
    order_mean,
    ordinal,
)
from vflsim.timing.laws.law import Law, Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sympy

_MOST_KINDS = 4
"""The most kinds of clients for which formulas of shares and uploads are written in full."""
Named = tuple[Groups, list[str]]
"""Distinct laws with their numbers of clients, and the names of these clients."""


def duration_formulas(threshold: int, step: Law) -> tuple[Formula, ...]:
    """Return T = B + U₍R₎ + S."""
    import sympy

    barrier, upload, service = sympy.symbols(f"B U_({threshold}) S")
    parts = barrier + upload + (0 if step == Point(0.0) else service)
    note = f"S: decoding and server step, {described(step)} s" if step != Point(0.0) else "the server steps at once"
    return (Formula(sympy.Symbol("T"), parts, f"{note}; B: until all have shared their models"),)


def threshold_formulas(segments: int, masks: int, clients: int) -> tuple[Formula, ...]:
    """Return R = 2 (K + T − 1) + 1, and the number of tolerated stragglers."""
    import sympy

    k, t, n, r = sympy.symbols("K T N R")
    numbers = f"K = {segments}, T = {masks}, N = {clients}"
    return (
        Formula(r, sympy.Add(sympy.Mul(2, k + t - 1, evaluate=False), 1, evaluate=False), numbers),
        Formula(sympy.Symbol("spared"), n - r, "stragglers that a round does not wait for"),
    )


def barrier_formulas(shares: Named) -> tuple[Formula, ...]:
    """Return the cdf of the longest share, which is the barrier."""
    return _order_formulas(shares, "V", "G", sum(n for _, n in shares[0]), "B")


def upload_formulas(uploads: Named, threshold: int) -> tuple[Formula, ...]:
    """Return the cdf of the R-th upload, counted from the barrier, and its mean."""
    return _order_formulas(uploads, "U", "F", threshold, f"U_({threshold})")


def _order_formulas(named: Named, time: str, cdf: str, t: int, what: str) -> tuple[Formula, ...]:
    import sympy

    groups, names = named
    x, size = sympy.Symbol("x", real=True), sum(count for _, count in groups)
    cdfs = [sympy.Function(f"{cdf}_{g}" if len(groups) > 1 else cdf)(x) for g in range(1, len(groups) + 1)]
    sizes = [count for _, count in groups]
    which = f"the longest of {size}" if t == size else f"the {ordinal(t)} of {size}"
    note = which + (f"; {RECURSION}" if needs_recursion(sizes, t) else "")
    ordered = sympy.Function(f"P_{what}")(x)
    found = [Formula(ordered, order_cdf(cdfs, sizes, t), note)]
    found += _kinds(groups, names, cdfs, time, x)
    mean = order_mean(groups[0][0], size, t) if len(groups) == 1 else None
    right = sympy.Integral(1 - ordered, (x, 0, sympy.oo)) if mean is None else mean
    return *found, Formula(sympy.Function("E")(sympy.Symbol(what)), right)


def _kinds(
    groups: Groups, names: Sequence[str], cdfs: Sequence[sympy.Expr], time: str, x: sympy.Symbol
) -> list[Formula]:
    import sympy

    found = []
    for (law, _), name, cdf in list(zip(groups, names, cdfs, strict=True))[:_MOST_KINDS]:
        right = cdf_of(law, x)
        if right is None:
            right = sympy.Function("P")(sympy.Le(sympy.Symbol(time), x))
        found.append(Formula(cdf, right, f"{name}: {described(law)} s"))
    if len(groups) > len(found):
        last = found[-1]
        more = f"{last.note}; {len(groups) - len(found)} more kinds are alike in form"
        found[-1] = Formula(last.left, last.right, more)
    return found
