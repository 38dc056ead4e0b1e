"""Describes which earlier runs a study keeps, before it starts."""

from __future__ import annotations

from collections.abc import Collection

from vflsim.results.store.folder import Prepared
from vflsim.scenario.changes import at_most
from vflsim.studies.runs.progress import Growth, Run
from vflsim.vocabulary.amounts import quantity

_NAMED = 3
_LINES = 8


def sentences(prepared: Prepared, growth: Growth) -> list[str]:
    """Return a few lines: how many runs are kept, which are computed, and where the others are now, and why."""
    total, kept = len(growth.kept) + len(growth.left), len(growth.kept)
    anew = [run for run in growth.left if run not in growth.continued]
    lines = [f"{prepared.folder}: {_kept(kept, total)}"]
    if growth.continued:
        lines.append(f"  continued from checkpoints: {listed(growth.continued)} ({_from(growth)})")
    if anew and (kept or growth.continued):
        lines.append(f"  to compute: {listed(anew)}")
    lines += asides(prepared, growth)
    return [*lines, *(f"  warning: {note}" for note in growth.notes)]


def asides(prepared: Prepared, growth: Growth) -> list[str]:
    """Name the runs that are moved aside, with their new place and the reasons."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run, reasons in growth.aside.items():
        groups.setdefault(reasons, []).append(run)
    lines = (
        f"  moved to {prepared.moved_to}: {listed(runs)} ({', '.join(at_most(reasons, _NAMED))})"
        for reasons, runs in groups.items()
    )
    return at_most(lines, _LINES)


def listed(runs: Collection[Run]) -> str:
    """Name runs in groups of protocols with the same seeds: ``15 runs: seeds 5–9 of 3 protocols``."""
    seeds: dict[str, list[int]] = {}
    for name, seed in runs:
        seeds.setdefault(name, []).append(seed)
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, some in seeds.items():
        groups.setdefault(tuple(sorted(some)), []).append(name)
    parts = [f"{_seeds(some)} of {_names(names)}" for some, names in groups.items()]
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {'; '.join(at_most(parts, _NAMED))}"


def _kept(kept: int, total: int) -> str:
    if kept == total:
        return f"all {total} runs are there and stay (--anew computes them again)"
    return f"{kept} of {total} runs are there and stay" if kept else "none of its runs is kept"


def _from(growth: Growth) -> str:
    times = sorted(found.position.time_s for found in growth.continued.values())
    first, last = quantity(times[0], "s"), quantity(times[-1], "s")
    return f"from {first}" if first == last else f"from {first} … {last}"


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} protocols"


def _seeds(seeds: tuple[int, ...]) -> str:
    """Format sorted seeds: ``seed 3``, ``seeds 0–4, 7``."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1][1:] = [seed]
        else:
            spans.append([seed])
    texts = ["–".join(map(str, span)) for span in spans]
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(at_most(texts, _LINES))}"
