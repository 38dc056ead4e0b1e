"""Laws of coded rounds: a barrier of shares, the R-th upload, and a server step (FedVS Sec. 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vflsim.analysis.cycles import Turn, Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, Formulas, Range
from vflsim.analysis.formulas import ordinal
from vflsim.analysis.rounds import LATER, MIXED, ROUND, groups_of
from vflsim.protocols.fedvs.formulas import barrier_formulas, duration_formulas, threshold_formulas, upload_formulas
from vflsim.protocols.fedvs.late import LateShares
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.streams import SERVER
from vflsim.timing.interpolation import Interpolated
from vflsim.timing.law import Law, Point
from vflsim.timing.order import OrderStatistic, maximum, order_statistic
from vflsim.timing.sums import SumLaw, shifted, total

BARRIER = "share barrier"
ONCE = "data sharing, once"
_MOST_ATOMS = 32
"""Most atoms of all uploads together for the law of lateness."""


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
        return total([tabled(self.barrier), tabled(self.upload), self.step])


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
        form(ROUND, lambda r: r.duration, lambda: duration_formulas(threshold, bounds[turn][0].step, protocol.late)),
        form(BARRIER, lambda r: tabled(r.barrier), lambda: barrier_formulas(shares, protocol.late)),
        form(which, lambda r: r.upload, lambda: upload_formulas(uploads, threshold)),
        ClosedForm("recovery threshold R", "", (), of_threshold, given=Range.of(threshold)),
        ClosedForm("stragglers spared", "", (), of_threshold, given=Range.of(many - threshold)),
        data_sharing(stages),
    )  # fmt: skip


def bounds_of(stages: CodedStages, turn: Turn) -> tuple[CodedRound, CodedRound]:
    """Return lower and upper bounds of a round; equal if the law is known. Raises like ``coded``."""
    threshold = stages.plan.threshold
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
    if stages.finishing and threshold < len(stages.clients):
        fast, slow = _finished(stages, turn, fast, slow)
    deadline = stages.protocol.deadline
    if deadline is not None and deadline < slow.barrier.support[1] + slow.upload.support[1]:
        raise Unanalysable("rounds may miss their deadline: how often those are given up is not known")
    return fast, slow


def _finished(stages: CodedStages, turn: Turn, fast: CodedRound, slow: CodedRound) -> tuple[CodedRound, CodedRound]:
    """Return the bounds if a late client first finishes its upload of the previous round.

    A client is late if its upload delay ends after it receives the gradient. That is sooner than the arrival of its
    upload, by the upload's way; and later than the arrival of the R-th upload, by the server step and the way back.
    Shares under way and waits for links also change the lateness. ``head_start`` and ``delay`` bound all of this.
    """
    threshold, clients = stages.plan.threshold, stages.clients
    before = Turn(turn.share, turn.before, turn.before)
    under_way = max(stages.passing(client, turn).support[1] for client in clients)
    if not math.isfinite(under_way):
        raise Unanalysable("shares may be under way for any time: by how much late clients are later is not known")
    uploads = [stages.answering(client, before) for client in clients]
    barrier = late_barrier([stages.sharing(client, turn) for client in clients], uploads, threshold)
    held = max(stages.return_seconds(m, turn, True) - stages.return_seconds(m, turn, False) for m in clients)
    waits = max(stages.upload_seconds(m, before, True) - stages.upload_seconds(m, before, False) for m in clients)
    ways = max(stages.longest_way(m, SERVER, before) + stages.longest_way(SERVER, m, turn) for m in clients)
    head_start, delay = under_way + waits + ways + slow.step.support[1], 2 * under_way + held
    least, most = fast.barrier, total([barrier, Point(delay)])
    if barrier.expectation() - head_start >= least.expectation():
        least = total([barrier, Point(-head_start)])
    if stages.steps_differ(turn):
        sent = [total([stages.sharing(client, turn, slow=True), Point(2 * under_way)]) for client in clients]
        most = late_barrier(sent, uploads, threshold)
    return CodedRound(least, fast.upload, fast.step), CodedRound(most, slow.upload, slow.step)


def late_barrier(shares: Sequence[Law], uploads: Sequence[Law], threshold: int) -> Law:
    """Return the law of max_m [(U_m − U₍R₎)⁺ + share_m]. Raises Unanalysable for uploads with very many atoms."""
    if all(isinstance(law, Point) for law in uploads):
        last = order_statistic(uploads, threshold).expectation()
        late = [max(0.0, law.expectation() - last) for law in uploads]
        return maximum([shifted(share, seconds) for share, seconds in zip(shares, late, strict=True)])
    likely = {x for law in set(uploads) for x in law.atoms().values.tolist()}
    if len(likely) > _MOST_ATOMS:
        raise Unanalysable(f"uploads take {len(likely):,} single values, of which any two may tie: too many to count")
    return LateShares(tuple(zip(shares, uploads, strict=True)), threshold)


@lru_cache(64)
def tabled(law: Law) -> Law:
    """Return the same law with fast quantiles."""
    if isinstance(law, LateShares | OrderStatistic):
        return Interpolated(law)
    return total([Point(law.constant), *map(tabled, law.parts)]) if isinstance(law, SumLaw) else law


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
    if stages.finishing:
        found.append("late uploads are finished first: neighbouring rounds depend on each other, and have this law")
    if bounds:
        longest = max(stages.passing(client, turn).support[1] for client in stages.clients for turn in stages.turns)
        found.append(f"bounds: shares are under way, and messages wait for links, for at most {longest:.3g} s a client")
    return tuple(found)
