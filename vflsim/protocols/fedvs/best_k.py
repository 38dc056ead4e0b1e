"""The mean round of a coded protocol for every allowed K and T, and the K with the shortest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflsim.analysis.findings import Choices, Range
from vflsim.protocols.fedvs.rounds import CodedRound, bounds_of, data_sharing
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.setting import Setting
from vflsim.tables import Cell
from vflsim.timing.laws.law import Law
from vflsim.vocabulary.amounts import quantity

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys


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
