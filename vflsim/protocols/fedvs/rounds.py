"""Laws of coded rounds: a barrier of shares, the R-th upload, and a server step (FedVS Sec. 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflsim.analysis.findings import Choices, ClosedForm, Finding, Formula, Formulas, Range
from vflsim.analysis.formulas import (
    RECURSION,
    Groups,
    cdfs_of,
    described,
    kind_formulas,
    needs_recursion,
    order_cdf,
    order_mean,
    ordinal,
)
from vflsim.analysis.rounds import LATER, MIXED, ROUND, groups_of
from vflsim.analysis.stages import Turn, Unanalysable
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.setting import Setting
from vflsim.tables import Cell
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum, order_statistic
from vflsim.vocabulary.amounts import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vflsim.protocols.fedvs.keys import CodedKeys


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


def _order_formulas(named: Named, time: str, letter: str, t: int, what: str) -> tuple[Formula, ...]:
    import sympy

    groups, names = named
    x, size = sympy.Symbol("x", real=True), sum(count for _, count in groups)
    cdfs, sizes = cdfs_of(len(groups), x, letter), [count for _, count in groups]
    which = f"the longest of {size}" if t == size else f"the {ordinal(t)} of {size}"
    note = which + (f"; {RECURSION}" if needs_recursion(sizes, t) else "")
    ordered = sympy.Function(f"P_{what}")(x)
    mean = order_mean(groups[0][0], size, t) if len(groups) == 1 else None
    right = sympy.Integral(1 - ordered, (x, 0, sympy.oo)) if mean is None else mean
    return (
        Formula(ordered, order_cdf(cdfs, sizes, t), note),
        *kind_formulas(groups, names, cdfs, x, time, _MOST_KINDS),
        Formula(sympy.Function("E")(sympy.Symbol(what)), right),
    )


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
    passing = [stages.passing(client) for client in stages.clients]
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
        longest = max(stages.passing(client).support[1] for client in stages.clients)
        terms.append(f"bounds: shares are under way, and messages wait for links, for at most {longest:.3g} s a client")
    return tuple(terms)


COLUMNS = (
    "R", "stragglers spared", "mean round [s]", "share barrier [s]", "R-th upload [s]", "data sharing, once [s]",
    "storage per client",
)  # fmt: skip
"""Columns of a table of choices of K or T, after the first column."""


@dataclass(frozen=True, slots=True)
class CodeChoice:
    """Consequences of one choice of K and T: means in seconds, or their bounds; ``storage`` in bytes per client.

    Every choice trains on the same rows per round, K|B| = batch: the shortest mean round trains fastest.
    ``data_sharing_s`` occurs once.
    """

    segments: int
    masks: int
    threshold: int
    spared: int
    round_s: Range
    barrier_s: Range
    upload_s: Range
    data_sharing_s: Range
    storage: int


def by_segments(stages: CodedStages) -> tuple[CodeChoice, ...]:
    """Evaluate every K that divides the batch (any with ``batch: all``) and keeps R ≤ N at the protocol's T, ascending.

    Raises Unanalysable if rounds have no known law.
    """
    batch, masks = stages.setting.training.batch, stages.protocol.T
    most = min((len(stages.clients) - 1) // 2 + 1 - masks, stages.plan.batch)
    segments = [k for k in range(1, most + 1) if batch == "all" or batch % k == 0]
    return tuple(_choices(stages, [(k, masks) for k in segments]))


def by_masks(stages: CodedStages) -> tuple[CodeChoice, ...]:
    """Evaluate every T that keeps R ≤ N at the protocol's K, ascending. Raises like ``by_segments``."""
    segments = stages.protocol.K
    most = (len(stages.clients) - 1) // 2 + 1 - segments
    return tuple(_choices(stages, [(segments, masks) for masks in range(1, most + 1)]))


def best(choices: Sequence[CodeChoice]) -> tuple[CodeChoice, tuple[CodeChoice, ...]]:
    """Return the choice with the shortest mean round, and the choices whose bounds of the mean overlap with its bounds.

    Choices are compared by their upper bounds; the first of equal choices wins.
    """
    first = min(choices, key=lambda choice: choice.round_s.high)
    rivals = (choice for choice in choices if choice is not first and choice.round_s.low <= first.round_s.high)
    return first, tuple(rivals)


def _choices(stages: CodedStages, codes: Sequence[tuple[int, int]]) -> Iterator[CodeChoice]:
    known: dict[Law, float] = {}  # the barrier of one K is the same for every T

    def mean(law: Law) -> float:
        if law not in known:
            known[law] = law.expectation()
        return known[law]

    for segments, masks in codes:
        try:
            coded = stages.coded(segments, masks)
        except ValueError:
            continue  # more segments than rows
        turns = [(turn.share, bounds_of(coded, turn)) for turn in coded.turns]
        each = [[(share, _means(bounds[side], mean)) for share, bounds in turns] for side in (0, 1)]
        low, high = ([math.fsum(share * means[part] for share, means in side) for part in range(3)] for side in each)
        barrier, upload, _ = (Range(*pair) for pair in zip(low, high, strict=True))
        round_ = Range(math.fsum(low), math.fsum(high))
        many, threshold = len(coded.clients), coded.plan.threshold
        yield CodeChoice(
            segments, masks, threshold, many - threshold, round_, barrier, upload, data_sharing(coded).mean,
            coded.plan.storage,
        )  # fmt: skip


def _means(parts: CodedRound, mean: Callable[[Law], float]) -> tuple[float, float, float]:
    return mean(parts.barrier), mean(parts.upload), mean(parts.step)


def choice_row(choice: CodeChoice, by: str) -> tuple[Cell, ...]:
    """Return the cells of one choice of K or T with its consequences."""
    seconds = (choice.round_s, choice.barrier_s, choice.upload_s, choice.data_sharing_s)
    return (
        choice.segments if by == "K" else choice.masks, choice.threshold, choice.spared,
        *(each.amount for each in seconds), quantity(choice.storage, "B"),
    )  # fmt: skip


def verdict(choices: Sequence[CodeChoice], batch: int) -> str:
    """State the best K and the criterion."""
    first, rivals = best(choices)
    others = ", ".join(str(choice.segments) for choice in rivals)
    doubt = f" (or K = {others}: bounds overlap)" if rivals else ""
    return (
        f"best K: {first.segments}{doubt}, by the shortest mean round; for every K a round trains on a batch of "
        f"{batch} rows, so this K also trains fastest"
    )


def choices_of(protocol: CodedKeys, setting: Setting) -> tuple[Choices, ...]:
    """Return the tables of ``vflsim analyze``: rounds against K, and against T. Raises Unanalysable."""
    stages = CodedStages(protocol, setting)
    tables = []
    for key, compare, other in (("K", by_segments, f"T = {protocol.T}"), ("T", by_masks, f"K = {protocol.K}")):
        choices = compare(stages)
        notes = (verdict(choices, setting.batch),) if key == "K" else ()
        rows = tuple(choice_row(choice, key) for choice in choices)
        same = key, protocol.model_copy(update={key: 1}), setting.training
        first = str(best(choices)[0].segments) if key == "K" and choices else ""
        tables.append(Choices(key, f"rounds against {key}, {other}", COLUMNS, rows, notes, same, first))
    return tuple(tables)
