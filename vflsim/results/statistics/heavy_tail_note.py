"""The notes on intervals over seeds that a heavy tail makes too narrow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from vflsim.results.facts.heavy_tail import HeavyTail
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.coverage import ENOUGH, SEEDS, Coverage, Estimated, measured

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
    for said, names in grouped.items():
        yield f"{', '.join(names)}: {said}"


def _rounds_to_target(summary: pd.DataFrame) -> dict[str, float]:
    """Return the rounds that protocols took to the first target, where their mean has an interval."""
    own = summary[(summary["measure"] == "rounds_to_target") & summary["baseline"].isna() & summary["low"].notna()]
    own = own[own["target"].isin(summary["target"].dropna()[:1])]
    return dict(zip(own["protocol"], own["mean"], strict=True))


def _figures(row: Coverage, kinds: Sequence[Estimated]) -> str:
    shares = " and ".join(f"{100 * getattr(row, kind):.0f} % {_WORDS[kind]}" for kind in kinds)
    each = f"{row.rounds} round{'s' if row.rounds > 1 else ''} a run"
    return f"intervals of 95 % cover about {shares} (measured: {SEEDS} seeds, {row.law}, {each})"


def _heaviest(results: RunSet) -> dict[str, tuple[HeavyTail, int]]:
    """Return the worst tail of every protocol's runs that is worrying, with the rounds of its run."""
    found: dict[str, tuple[HeavyTail, int]] = {}
    for run in results.runs:
        tail = run.info.heavy_tail
        if run.failed or tail is None or not tail.worrying:
            continue
        if run.protocol not in found or tail.share > found[run.protocol][0].share:
            found[run.protocol] = tail, run.info.counts.get("rounds", math.ceil(tail.draws))
    return found


def _cause(tail: HeavyTail) -> str:
    from vflsim.analysis.rounds import numbered  # imports all closed forms

    whose = f"the {tail.activity} of {numbered(tail.clients)} ({tail.kind})"
    if tail.infinite:
        return f"{whose} has no finite variance"
    return f"of {whose}, the slowest of {tail.draws:,.3g} draws has {math.floor(100 * tail.share)} % of the variance"
