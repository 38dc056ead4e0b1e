"""The section of a report about one results folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from vflsim.files import text
from vflsim.reporting import charts, compared, tables
from vflsim.reporting.answer import Conclusion, answer
from vflsim.reporting.figures import BRIEF, CAPTIONS, Drawn, Ink, drawn
from vflsim.reporting.tables import Sheet
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.manifest import Manifest
from vflsim.results.store.write import MANIFEST, SCENARIO
from vflsim.results.tables.comparison import comparison_table
from vflsim.results.tables.sections import ENERGY_TITLE, energy_table
from vflsim.vocabulary.amounts import quantity

ROWS = 300
"""Most rows of a table."""
_WHOLE = {ENERGY_TITLE: "energy_by_party.parquet of each run"}
"""What has all rows of a table, by its title."""
VIEWS = {"explained": "explain.md", "evaluated": "evaluate.md"}
"""Folders beside the results, by the end of their names, and the pages of tables in them."""


@final
@dataclass(frozen=True)
class Section:
    """The content of a report's section about one results folder; ``data`` is that of its charts."""

    key: str
    name: str
    lead: str
    answer: Conclusion
    comparison: Sheet
    reasons: Sheet | None
    data: dict[str, Any]
    figures: list[Drawn]
    facts: list[tuple[str, str]]
    described: list[Sheet]
    scenario: str
    more: list[Sheet]
    views: list[Sheet]
    failed: Sheet | None
    repeat: str
    versions: Sheet
    hashes: Sheet | None


def section(results: Results, ink: Ink, key: str, brief: bool, share: float) -> Section:
    """Make the section of a results folder; ``key`` begins the ids of its elements. Raises ResultsError.

    ``brief``: with the most telling figures alone; ``share`` of a page's size for the data of its charts.
    """
    summary = results.estimates()
    figures = drawn(results, ink, f"{key}-", {name: CAPTIONS[name] for name in BRIEF} if brief else CAPTIONS)
    numbers = {each.name: each.numbers for each in figures}
    charted = {
        "curves": charts.curves(results, numbers, share),
        "timeline": charts.timeline(results, share),
        "looks": charts.looks(results),
    }
    more = [
        tables.closed_forms(results),
        tables.left_out(results),
        _energy(results),
        tables.answers(results),
        tables.measures(results, summary),
        tables.differences(results, summary),
    ]
    return Section(
        key=key,
        name=results.name,
        lead=_lead(results),
        answer=answer(results, summary, numbers),
        comparison=Sheet.of(comparison_table(results), "Comparison"),
        reasons=tables.reasons(results, numbers),
        data=charted,
        figures=figures,
        facts=[*compared.facts(results)],
        described=[
            each
            for each in (compared.protocols(results), compared.conditions(results), compared.timing(results))
            if each
        ],
        scenario=text(results.folder / SCENARIO),
        more=[each.limited(ROWS, _WHOLE.get(each.title, "summary.parquet")) for each in more if each],
        views=[*_views(results.folder)],
        failed=failed(results.runs),
        repeat=_repeat(results),
        versions=versions(results.runs),
        hashes=_hashes(results),
    )


def _energy(results: Results) -> Sheet | None:
    """List the energy of every party; None where none was counted."""
    table = energy_table(results, each=True)
    return None if table is None else Sheet.of(table)


def _lead(results: Results) -> str:
    """Count what was run."""
    seconds = sum(run.info.wall_clock_s for run in results.runs)
    timing = ", timing only" if all(run.info.timing_only for run in results.runs) else ""
    protocols, seeds = len(results.protocols), len(results.seeds)
    counted = f"{protocols} protocol{'s' * (protocols != 1)}, {seeds} seed{'s' * (seeds != 1)}"
    return f"{counted}, {len(results.runs)} runs{timing}; {quantity(float(f'{seconds:.3g}'), 's')} of computing"


def _views(folder: Path) -> Iterator[Sheet]:
    """Read the tables that ``vflsim explain`` and ``vflsim evaluate`` have written beside the results."""
    whole = folder.resolve()
    for end, page in VIEWS.items():
        place = whole.with_name(f"{whole.name}-{end}") / page
        if place.is_file():
            yield from tables.from_markdown(text(place))


def failed(runs: Iterable[StoredRun]) -> Sheet | None:
    """List the runs that failed with their errors; None if there are none."""
    rows = tuple((run.protocol, str(run.seed), run.info.status, run.info.error or "—") for run in runs if run.failed)
    header = ("protocol", "seed", "how", "why")
    return Sheet("Runs that failed", header, rows, left=(0, 2, 3)).limited(ROWS, "run.json") if rows else None


def _repeat(results: Results) -> str:
    """Return the commands that repeat the study."""
    version = _one(run.info.versions.get("vflsim", "") for run in results.runs)
    timing = " --timing-only" if all(run.info.timing_only for run in results.runs) else ""
    threads = _one(str(run.info.threads) for run in results.runs)
    threads = "" if threads in ("", "1") else f" --threads {threads}"
    install = f"pip install -c constraints.txt -e .   # in the source folder of vflsim {version}".rstrip()
    return f"{install}\nvflsim run {SCENARIO}{timing}{threads}   # {SCENARIO} holds the text above"


def versions(runs: Sequence[StoredRun]) -> Sheet:
    """List versions and the machine, and what differs between runs."""
    names = dict.fromkeys(name for run in runs for name in run.info.versions)
    rows = [(name, _each(run.info.versions.get(name, "—") for run in runs)) for name in names]
    rows += [("device", _each(run.info.device for run in runs))]
    rows += [("threads", _each(str(run.info.threads) for run in runs))]
    rows += [("path", _each(run.info.path for run in runs))]
    same = all(run.info.reproducible for run in runs)
    note = (
        "The same versions, device and threads give the same tables, byte for byte."
        if same
        else "Some runs stopped by the wall clock or ran in real time: repeating them gives other tables."
    )
    return Sheet("Versions", ("what", "which"), tuple(rows), (note,), (0, 1))


def _hashes(results: Results) -> Sheet | None:
    """List the digests of the study's files; None if it has no manifest."""
    manifest = Manifest.read(results.folder)
    if manifest is None:
        return None
    rows = tuple((name, facts.sha256) for name, facts in sorted(manifest.files.items()))
    notes = (f"SHA-256, as in {MANIFEST}; each run.json has those of its run’s tables. vflsim verify compares them.",)
    return Sheet("Digests", ("file", "SHA-256"), rows, notes, (0, 1)).limited(ROWS, MANIFEST)


def _one(values: Iterator[str]) -> str:
    """Return the value that all runs share, else nothing."""
    found = {*values}
    return found.pop() if len(found) == 1 else ""


def _each(values: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(values))
