"""Laws of coded rounds: a barrier of shares, the R-th upload, and a server step (FedVS Sec. 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vflsim.analysis.cycles import Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, Formulas, Range
from vflsim.analysis.formulas import ordinal
from vflsim.analysis.rounds import LATER, MIXED, ROUND, groups_of
from vflsim.protocols.fedvs.formulas import barrier_formulas, duration_formulas, threshold_formulas, upload_formulas
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import maximum, order_statistic

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
    given = Range(first.expectation(), math.inf) if math.isinf(passing) else None
    return ClosedForm(ONCE, "s", conditions, tuple, first, slower, given)


def _conditions(stages: CodedStages, bounds: bool) -> tuple[str, ...]:
    found = [LATER, "draws are independent"]
    if len(stages.turns) > 1:
        found.append(MIXED)
    if bounds:
        longest = max(stages.passing(client, turn).support[1] for client in stages.clients for turn in stages.turns)
        found.append(f"bounds: shares are under way, and messages wait for links, for at most {longest:.3g} s a client")
    return tuple(found)
