"""Heavy tails: how often 95 % intervals over seeds cover, and the notes on intervals that are too narrow.

They come from ``python benchmarks/coverage.py over_seeds``: 2,000 studies of five seeds each, a standard error of .01.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from vflsim.results.facts import HeavyTail
from vflsim.results.run_set import RunSet

Estimated = Literal["mean", "difference", "cost"]
Cause = Literal["tail", "infinite", "bursts", "dependence"]
SEEDS = 5
"""Seeds of a measured study."""
ENOUGH = 0.93
"""Coverage from which on an interval of 95 % needs no warning."""

ROUNDING = 0.001
"""Rounding of the measured runs' ``share``."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of runs of so many ``rounds`` of a law, because of a heavy tail, an infinite variance, or bursts.

    ``draws`` are the rounds, or the cycles of bursts, and ``share`` is the part of the variance in the slowest of them
    (:func:`~vflsim.timing.tail_share.tail_share`). ``mean``, ``difference`` and ``cost`` are the shares of studies
    whose interval covers the mean, the paired difference, and the geometric mean of a cost.
    """

    law: str
    cause: Cause
    rounds: int
    draws: float
    share: float
    mean: float
    difference: float
    cost: float


MEASURED = (
    Coverage("exponential", "tail", 1, 1, 0.736, 0.89, 0.88, 0.93),
    Coverage("exponential", "tail", 30, 30, 0.419, 0.95, 0.96, 0.95),
    Coverage("exponential", "tail", 300, 300, 0.112, 0.95, 0.95, 0.95),
    Coverage("log-normal 1.5", "tail", 1, 1, 0.949, 0.70, 0.69, 0.96),
    Coverage("log-normal 1.5", "tail", 30, 30, 0.899, 0.91, 0.91, 0.95),
    Coverage("log-normal 1.5", "tail", 300, 300, 0.659, 0.94, 0.94, 0.95),
    Coverage("Pareto 2.2", "tail", 1, 1, 0.966, 0.75, 0.77, 0.88),
    Coverage("Pareto 2.2", "tail", 30, 30, 0.934, 0.90, 0.92, 0.93),
    Coverage("Pareto 2.2", "tail", 300, 300, 0.82, 0.93, 0.93, 0.94),
    Coverage("Pareto 1.5", "infinite", 1, 1, 1, 0.62, 0.63, 0.88),
    Coverage("Pareto 1.5", "infinite", 30, 30, 1, 0.77, 0.79, 0.91),
    Coverage("Pareto 1.5", "infinite", 300, 300, 1, 0.83, 0.83, 0.91),
    Coverage("bursts", "bursts", 1, 0.004, 0.901, 0.63, 0.64, 0.95),
    Coverage("bursts", "bursts", 30, 0.12, 0.901, 0.76, 0.74, 0.82),
    Coverage("bursts", "bursts", 300, 1.2, 0.901, 0.91, 0.92, 0.94),
    Coverage("bursts", "bursts", 3000, 12, 0.875, 0.95, 0.93, 0.95),
    Coverage("correlated", "dependence", 1, 1, 0.736, 0.89, 0.88, 0.92),
    Coverage("correlated", "dependence", 30, 30, 0.419, 0.91, 0.91, 0.94),
    Coverage("correlated", "dependence", 300, 300, 0.112, 0.94, 0.95, 0.95),
)


def measured(tail: HeavyTail, rounds: int, passed: float, kind: Estimated) -> Coverage:
    """Choose the measured runs with the least coverage of those like a run's first ``passed`` of ``rounds`` rounds.

    They are of the same cause, with the next fewer and the next more draws, and with at least as heavy a tail, as far
    as there are such. The law is the least heavy one; the lowest one if fewer rounds passed, whose share is not known.
    """
    cause: Cause = "infinite" if tail.infinite else "bursts" if tail.draws < rounds else "tail"
    alike = sorted((row for row in MEASURED if row.cause == cause), key=lambda row: (row.draws, row.share))
    draws = tail.draws * (passed / rounds)
    fewer = [row.draws for row in alike if row.draws <= draws][-1:]
    more = [row.draws for row in alike if row.draws >= draws][:1]
    near = []
    for number in {*fewer, *more}:
        those = [row for row in alike if row.draws == number]
        heavier = [row for row in those if row.share >= tail.share - ROUNDING] or those[-1:]
        near += heavier[:1] if passed >= rounds else heavier
    return min(near, key=lambda row: getattr(row, kind))


_WORDS: dict[Estimated, str] = {
    "mean": "of mean times and bytes",
    "difference": "of paired differences",
    "cost": "of costs to the target",
}
_HELPS: dict[Estimated, str] = {
    "difference": "More rounds a run help, or quantiles",
    "cost": "Intervals of speed-ups cover",
}
"""What helps instead."""
_COST: tuple[Estimated, ...] = ("cost",)


def heavy_tail_notes(
    studies: Sequence[tuple[RunSet, pd.DataFrame]], *, means: bool = False, differences: bool = False
) -> Iterator[str]:
    """Yield how often intervals of 95 % over seeds cover at worst in any study, where that is too seldom, and why.

    They are those of costs to the first target of a study's summary, and those of ``means`` over whole runs with their
    differences, or of ``differences`` alone.
    """
    shown: tuple[Estimated, ...] = ("mean", "difference") if means else ("difference",) if differences else ()
    worst: dict[tuple[str, tuple[Estimated, ...]], tuple[Coverage, str]] = {}
    for results, summary in studies:
        to_target = _rounds_to_target(summary)
        for name, (tail, rounds) in _heaviest(results).items():
            for kinds, passed in ((shown, float(rounds)), (_COST, to_target.get(name, 0.0))):
                if kinds and passed > 0:
                    row = measured(tail, rounds, passed, kinds[0])
                    known = worst.setdefault((name, kinds), (row, _cause(tail)))[0]
                    if getattr(row, kinds[0]) < getattr(known, kinds[0]):
                        worst[name, kinds] = row, _cause(tail)
    grouped: dict[str, list[str]] = {}
    for (name, kinds), (row, cause) in worst.items():
        if min(getattr(row, each) for each in kinds) < ENOUGH:
            grouped.setdefault(f"{_figures(row, kinds)}: {cause}. {_HELPS[kinds[-1]]}.", []).append(name)
    for sentence, names in grouped.items():
        yield f"{', '.join(names)}: {sentence}"


def _rounds_to_target(summary: pd.DataFrame) -> dict[str, float]:
    """Return the rounds that protocols took to the first target, where their mean has an interval."""
    rounds = summary[(summary["measure"] == "rounds_to_target") & summary["baseline"].isna() & summary["low"].notna()]
    rounds = rounds[rounds["target"].isin(summary["target"].dropna()[:1])]
    return dict(zip(rounds["protocol"], rounds["mean"], strict=True))


def _figures(row: Coverage, kinds: Sequence[Estimated]) -> str:
    shares = " and ".join(f"{100 * getattr(row, kind):.0f} % {_WORDS[kind]}" for kind in kinds)
    each = f"{row.rounds} round{'s' if row.rounds > 1 else ''} a run"
    return f"intervals of 95 % cover about {shares} (measured: {SEEDS} seeds, {row.law}, {each})"


def _heaviest(results: RunSet) -> dict[str, tuple[HeavyTail, int]]:
    """Return the worst tail of every protocol's runs that is worrying, with the rounds of its run."""
    worst: dict[str, tuple[HeavyTail, int]] = {}
    for run in results.runs:
        tail = run.info.heavy_tail
        if run.failed or tail is None or not tail.worrying:
            continue
        if run.protocol not in worst or tail.share > worst[run.protocol][0].share:
            worst[run.protocol] = tail, run.info.counts.get("rounds", math.ceil(tail.draws))
    return worst


def _cause(tail: HeavyTail) -> str:
    from vflsim.analysis.rounds import numbered  # imports all closed forms

    whose = f"the {tail.activity} of {numbered(tail.clients)} ({tail.kind})"
    if tail.infinite:
        return f"{whose} has no finite variance"
    return f"of {whose}, the slowest of {tail.draws:,.3g} draws has {math.floor(100 * tail.share)} % of the variance"
