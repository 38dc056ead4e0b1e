"""The section of a report about a sweep: the first protocol at each point, tables, figures, and the points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, final

from vflsim.files import text
from vflsim.plotting.style import target_label
from vflsim.reporting.answer import Conclusion, Ranking, joined, ranking
from vflsim.reporting.figures import Drawn, Ink, drawn
from vflsim.reporting.section import ROWS, failed, versions
from vflsim.results.joined import tables_of_sweep
from vflsim.results.read import Results
from vflsim.results.store.write import RUN, SCENARIO
from vflsim.results.sweeps.answers_table import sentences as answered
from vflsim.results.sweeps.sweep import Sweep, SweepPage
from vflsim.results.tables.footnotes import round_measure, targets_in
from vflsim.scenario.emit import flow
from vflsim.tables import Cell, DataTable

CAPTIONS = {"sweep": "The mean round at every point", "sweep-target": "The time to the target at every point"}
"""The figures of a sweep's report by name."""


@final
@dataclass(frozen=True)
class SweepSection:
    """The content of a report's section about a sweep."""

    key: str
    name: str
    lead: str
    answer: Conclusion
    tables: list[DataTable]
    figures: list[Drawn]
    points: DataTable
    failed: DataTable | None
    scenario: str
    versions: DataTable


def sweep_section(sweep: Sweep, ink: Ink, key: str) -> SweepSection:
    """Make the section of a sweep; ``key`` begins the ids of its elements. Raises ResultsError."""
    rankings = [_ranking(*each) for each in zip(sweep.results, sweep.summaries, strict=True)]
    runs = [run for found in sweep.results for run in found.runs]
    return SweepSection(
        key=key,
        name=f"{sweep.scenario}: sweep over {sweep.label}",
        lead=_lead(sweep, len(runs)),
        answer=_answer(sweep, rankings),
        tables=[table.limited(ROWS, "vflsim compare SWEEP") for table in tables_of_sweep(sweep)],
        figures=drawn(sweep, ink, f"{key}-", CAPTIONS),
        points=_points(sweep, rankings).limited(ROWS, "sweep.json"),
        failed=failed(runs),
        scenario=text(sweep.results[0].folder / SCENARIO),
        versions=versions(runs),
    )


def _ranking(results: Results, summary: Any) -> Ranking | None:
    """Rank a point's protocols by the time to the target, or without one by their mean round."""
    if targets := targets_in(summary):
        return ranking(results, summary, "time_to_target", targets[0])
    return ranking(results, summary, round_measure(summary)) if len(summary) else None


def _lead(sweep: Sweep, runs: int) -> str:
    whole, timing = len(sweep.points) + len(sweep.pending), ", timing only" if sweep.timing_only else ""
    points = f"{len(sweep.points)} of {whole} points have finished" if sweep.pending else f"{whole} points"
    return f"{points}; {', '.join(sweep.protocols)}; {runs} runs{timing}"


def _answer(sweep: Sweep, rankings: Sequence[Ranking | None]) -> Conclusion:
    """Say which protocol is first at which points, and between which values each protocol's measure lies."""
    known = [(point, found) for point, found in zip(sweep.points, rankings, strict=True) if found is not None]
    targets = [target for summary in sweep.summaries for target in targets_in(summary)]
    if not known:
        return Conclusion("There is nothing to compare: no protocol has a mean at any point.", ())
    goal = target_label(targets[0]) if targets else ""
    first: dict[str, list[str]] = {}
    for point, found in known if len(sweep.protocols) > 1 else ():
        first.setdefault(_first(found), []).append(sweep.setting(point))
    sentences = []
    for names, settings in sorted(first.items(), key=lambda each: (-len(each[1]), " or " in each[0])):
        where = f"{len(settings)} of {len(sweep.points)} points" if len(settings) > 2 else joined(settings)
        where = "every point" if len(settings) == len(sweep.points) else where
        close = "; the seeds do not tell them apart" if " or " in names else ""
        sentences.append(f"{names} {f'reaches {goal} first' if goal else 'has the shortest rounds'} at {where}{close}.")
    sentences += answered(sweep)
    sentences += _ranges(sweep, known, f"time to {goal}" if goal else "mean round")
    return Conclusion(sentences[0], tuple(sentences[1:]))


def _first(found: Ranking) -> str:
    return " or ".join((found.best, *found.close))


def _ranges(sweep: Sweep, known: Sequence[tuple[Any, Ranking]], what: str) -> Iterator[str]:
    """Yield each protocol's least and greatest mean with their points, and at how many it has none."""
    for name in sweep.protocols:
        own = [(found.estimates[name].mean, found.text(name), point) for point, found in known if name in found.order]
        lost = f"; no mean at {len(known) - len(own)} of {len(known)} points" if len(own) < len(known) else ""
        if own:
            (_, least, here), (_, most, there) = (end(own, key=itemgetter(0)) for end in (min, max))
            ends = f"from {least} ({sweep.setting(here)}) to {most} ({sweep.setting(there)})"
            yield f"{name}: {what} {least if least == most else ends}{lost}."
        elif any(name in found.estimates for _, found in known):
            yield f"{name}: no {what} at any point, since some runs did not get there."


def _points(sweep: Sweep, rankings: Sequence[Ranking | None]) -> DataTable:
    """List every point with what its folder holds."""
    finished = iter(zip(sweep.results, rankings, strict=True))
    rows: list[tuple[Cell, ...]] = []
    for entry in SweepPage.read(sweep.folder).points:
        here = (entry.folder, *map(flow, entry.values))
        if entry.finished:
            results, found = next(finished)
            first = "—" if found is None else f"{_first(found)}: {found.text(found.best)}"
            counts = len(results.seeds), len(results.runs), len(results.failed)
            rows.append((*here, ", ".join(results.protocols), *counts, first))
        else:
            runs = len([*(sweep.folder / entry.folder).glob(f"*/seed-*/{RUN}")])
            rows.append((*here, "not finished", "—", runs, "—", "—"))
    target = any(targets_in(summary) for summary in sweep.summaries)
    labels = [axis.label for axis in sweep.axes]
    ends = ("protocols", "seeds", "runs", "failed", "first to the target" if target else "shortest rounds")
    notes = ("“a or b”: the seeds do not tell them apart. vflsim report SWEEP/FOLDER writes the report of a point.",)
    words = (0, len(labels) + 1, len(labels) + 5)
    return DataTable(("folder", *labels, *ends), rows, "Points", notes, words)
