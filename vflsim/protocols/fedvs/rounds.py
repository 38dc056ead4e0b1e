"""Laws of coded rounds: a barrier of shares, the R-th upload, and a server step (FedVS Sec. 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflsim.analysis.cycles import Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, Formula, Formulas, Range
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
from vflsim.analysis.rounds import LATER, MIXED, ROUND, groups_of
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum, order_statistic

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
    formulas = [Formula(ordered, order_cdf(cdfs, sizes, t), note)]
    formulas += _kinds(groups, names, cdfs, time, x)
    mean = order_mean(groups[0][0], size, t) if len(groups) == 1 else None
    right = sympy.Integral(1 - ordered, (x, 0, sympy.oo)) if mean is None else mean
    return *formulas, Formula(sympy.Function("E")(sympy.Symbol(what)), right)


def _kinds(
    groups: Groups, names: Sequence[str], cdfs: Sequence[sympy.Expr], time: str, x: sympy.Symbol
) -> list[Formula]:
    import sympy

    formulas = []
    for (law, _), name, cdf in list(zip(groups, names, cdfs, strict=True))[:_MOST_KINDS]:
        right = cdf_of(law, x)
        if right is None:
            right = sympy.Function("P")(sympy.Le(sympy.Symbol(time), x))
        formulas.append(Formula(cdf, right, f"{name}: {described(law)} s"))
    if len(groups) > len(formulas):
        last = formulas[-1]
        more = f"{last.note}; {len(groups) - len(formulas)} more kinds are alike in form"
        formulas[-1] = Formula(last.left, last.right, more)
    return formulas


# --- laws of rounds ---------------------------------------------------------------------------------------------------


BARRIER = "share barrier"
ONCE = "data sharing, once"


@dataclass(frozen=True, slots=True)
class CodedRound:
    """The laws of a round's parts, which are independent consecutive times."""

    barrier: Law
    """The time from the end of a server step until all clients have all shares of models."""
    upload: Law
    """The time from then to the arrival of the R-th coded embedding."""
    step: Law
    """The time of decoding and the server step."""

    @property
    def duration(self) -> Law:
        """The sum of the parts."""
        return total([self.barrier, self.upload, self.step])


def coded(stages: CodedStages) -> tuple[Finding, ...]:
    """Return the laws of a round and of its parts, the recovery threshold, and the law of sharing the data.

    Raises Unanalysable for a deadline that a round may miss, and if late work has no known law.
    """
    protocol, many, threshold = stages.protocol, len(stages.clients), stages.plan.threshold
    bounds = {turn: bounds_of(stages, turn) for turn in stages.turns}

    def form(name: str, part: Callable[[CodedRound], Law], formulas: Formulas) -> ClosedForm:
        fast, slow = (stages.over_turns(lambda turn, side=side: part(bounds[turn][side])) for side in (0, 1))  # type: ignore[misc]
        return ClosedForm(name, "s", _conditions(stages, fast != slow), formulas, fast, None if fast == slow else slow)

    turn = stages.turns[0]
    shares = groups_of(stages, [stages.sharing(client, turn) for client in stages.clients])
    uploads = groups_of(stages, [stages.answering(client, turn) for client in stages.clients])
    which = f"{ordinal(threshold)} of {many} uploads"
    of_threshold = lambda: threshold_formulas(protocol.K, protocol.T, many)  # noqa: E731
    return (
        form(ROUND, lambda r: r.duration, lambda: duration_formulas(threshold, bounds[turn][0].step)),
        form(BARRIER, lambda r: r.barrier, lambda: barrier_formulas(shares)),
        form(which, lambda r: r.upload, lambda: upload_formulas(uploads, threshold)),
        ClosedForm("recovery threshold R", "", (), of_threshold, given=Range.of(threshold)),
        ClosedForm("stragglers spared", "", (), of_threshold, given=Range.of(many - threshold)),
        data_sharing(stages),
    )  # fmt: skip


def bounds_of(stages: CodedStages, turn: Turn) -> tuple[CodedRound, CodedRound]:
    """Return lower and upper bounds of a round; equal if the law is known. Raises like ``coded``."""
    threshold = stages.plan.threshold
    if stages.protocol.late == "finished" and threshold < len(stages.clients):
        raise Unanalysable("late uploads are finished first: a round depends on the ones before")
    fast, slow = (
        CodedRound(
            maximum([stages.sharing(client, turn, late) for client in stages.clients]),
            order_statistic([stages.answering(client, turn, late) for client in stages.clients], threshold),
            stages.stepping(turn, late),
        )
        for late in (False, True)
    )
    sent = [stages.sharing(client, turn, slow=True) for client in stages.clients]
    passing = [stages.passing(client, turn) for client in stages.clients]
    there = maximum([total(pair) for pair in zip(sent, passing, strict=True)])
    slow = CodedRound(there, slow.upload, slow.step)
    deadline = stages.protocol.deadline
    if deadline is not None and deadline < slow.barrier.support[1] + slow.upload.support[1]:
        raise Unanalysable("rounds may miss their deadline: how often those are given up is not known")
    return fast, slow


def data_sharing(stages: CodedStages) -> ClosedForm:
    """Return the law of sharing the data, once, from the start until every client has its shares of all data."""
    first = maximum([stages.data_sharing(client) for client in stages.clients])
    conditions: tuple[str, ...] = ("the data are shared once, beside the first round",)
    passing = stages.data_passing()
    if passing:
        conditions += (f"bounds: shares of the data are under way for at most {passing:.3g} s",)
    slower = shifted(first, passing) if passing and math.isfinite(passing) else None
    bounds = Range(first.expectation(), math.inf) if math.isinf(passing) else None
    return ClosedForm(ONCE, "s", conditions, tuple, first, slower, bounds)


def _conditions(stages: CodedStages, bounds: bool) -> tuple[str, ...]:
    terms = [LATER, "draws are independent"]
    if len(stages.turns) > 1:
        terms.append(MIXED)
    if bounds:
        longest = max(stages.passing(client, turn).support[1] for client in stages.clients for turn in stages.turns)
        terms.append(f"bounds: shares are under way, and messages wait for links, for at most {longest:.3g} s a client")
    return tuple(terms)
