"""The page of a report: one HTML file that needs no network, with a section about several studies together."""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vflsim.errors import printable
from vflsim.files import text
from vflsim.party_names import naming, titled
from vflsim.plotting.style import target_label
from vflsim.reporting.answer import Conclusion, answer, joined
from vflsim.reporting.figures import CAPTIONS, Drawn, Ink, curves, drawn, embedded, looks
from vflsim.reporting.section import ROWS, Section, failed, section, versions
from vflsim.results.read import JoinedResults, Results, united
from vflsim.results.store.folder import RUN, SCENARIO
from vflsim.results.sweeps import Sweep, SweepPage
from vflsim.results.sweeps.answers_table import sentences as answered
from vflsim.results.sweeps.table import sweep_tables
from vflsim.results.tables import comparison_table, difference_table
from vflsim.results.tables.footnotes import round_measure, targets_in
from vflsim.results.tables.ranking import Ranking, budget_tables, ranking
from vflsim.tables import Cell, DataTable
from vflsim.version import __version__
from vflsim.vocabulary.plain_yaml import flow

SWEEP_CAPTIONS = {"sweep": "The mean round at every point", "sweep-target": "The time to the target at every point"}
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
    runs = [run for results in sweep.results for run in results.runs]
    return SweepSection(
        key=key,
        name=f"{sweep.scenario}: sweep over {sweep.label}",
        lead=_lead(sweep, len(runs)),
        answer=_answer(sweep, rankings),
        tables=[table.limited(ROWS, "vflsim compare SWEEP") for table in sweep_tables(sweep)],
        figures=drawn(sweep, ink, f"{key}-", SWEEP_CAPTIONS),
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
    known = [(point, ranks) for point, ranks in zip(sweep.points, rankings, strict=True) if ranks is not None]
    targets = [target for summary in sweep.summaries for target in targets_in(summary)]
    if not known:
        return Conclusion("There is nothing to compare: no protocol has a mean at any point.", ())
    goal = target_label(targets[0]) if targets else ""
    first: dict[str, list[str]] = {}
    for point, ranks in known if len(sweep.protocols) > 1 else ():
        first.setdefault(_first(ranks), []).append(sweep.setting(point))
    sentences = []
    for names, settings in sorted(first.items(), key=lambda each: (-len(each[1]), " or " in each[0])):
        where = f"{len(settings)} of {len(sweep.points)} points" if len(settings) > 2 else joined(settings)
        where = "every point" if len(settings) == len(sweep.points) else where
        close = "; the seeds do not tell them apart" if " or " in names else ""
        sentences.append(f"{names} {f'reaches {goal} first' if goal else 'has the shortest rounds'} at {where}{close}.")
    sentences += answered(sweep)
    sentences += _ranges(sweep, known, f"time to {goal}" if goal else "mean round")
    return Conclusion(sentences[0], tuple(sentences[1:]))


def _first(ranks: Ranking) -> str:
    return " or ".join((ranks.best, *ranks.close))


def _ranges(sweep: Sweep, known: Sequence[tuple[Any, Ranking]], what: str) -> Iterator[str]:
    """Yield each protocol's least and greatest mean with their points, and at how many it has none."""
    for name in sweep.protocols:
        means = [(ranks.estimates[name].mean, ranks.text(name), point) for point, ranks in known if name in ranks.order]
        lost = f"; no mean at {len(known) - len(means)} of {len(known)} points" if len(means) < len(known) else ""
        if means:
            (_, least, here), (_, most, there) = (end(means, key=itemgetter(0)) for end in (min, max))
            ends = f"from {least} ({sweep.setting(here)}) to {most} ({sweep.setting(there)})"
            yield f"{name}: {what} {least if least == most else ends}{lost}."
        elif any(name in ranks.estimates for _, ranks in known):
            yield f"{name}: no {what} at any point, since some runs did not get there."


def _points(sweep: Sweep, rankings: Sequence[Ranking | None]) -> DataTable:
    """List every point with what its folder holds."""
    finished = iter(zip(sweep.results, rankings, strict=True))
    rows: list[tuple[Cell, ...]] = []
    for entry in SweepPage.read(sweep.folder).points:
        here = (entry.folder, *map(flow, entry.values))
        if entry.finished:
            results, ranks = next(finished)
            first = "—" if ranks is None else f"{_first(ranks)}: {ranks.text(ranks.best)}"
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


KEY = "together"
FIGURES = {True: ("time", "target", "speedup"), False: ("time", "speedup", "durations")}
"""The figures of several studies together, with a common target and without."""


@final
@dataclass(frozen=True)
class Together:
    """The content of a report's section about several studies together; ``data`` is that of its chart."""

    key: str
    answer: Conclusion
    comparison: DataTable
    budgets: list[DataTable]
    data: dict[str, Any]
    figures: list[Drawn]
    differences: DataTable | None


def joint(results: JoinedResults, ink: Ink, share: float) -> Together:
    """Compare several studies; ``share`` of a page's size for the data of the chart. Raises ResultsError."""
    summary = results.estimates()
    figures = drawn(results, ink, f"{KEY}-", {name: CAPTIONS[name] for name in FIGURES[bool(targets_in(summary))]})
    numbers = {each.name: each.numbers for each in figures}
    conclusion, remarks = answer(results, summary, numbers), [*results.remarks()]
    comparison = replace(comparison_table(results), title="Comparison of all studies")
    differences = difference_table(results, summary)
    return Together(
        key=KEY,
        answer=replace(conclusion, sentences=(*conclusion.sentences, *_not_common(results), *remarks)),
        comparison=replace(comparison, notes=[note for note in comparison.notes if note not in remarks]),
        budgets=budget_tables(results),
        data={"curves": curves(results, numbers, share), "timeline": None, "looks": looks(results)},
        figures=figures,
        differences=differences and differences.limited(ROWS, "vflsim.compare(…).estimates()"),
    )


def _not_common(results: JoinedResults) -> Iterator[str]:
    """State which metrics or targets prevent a closer comparison of the studies."""
    metrics = {study.name: ", ".join(study.evaluated) or "none" for study in results.studies}
    if not results.evaluated and {*metrics.values()} != {"none"}:
        evaluated = "; ".join(f"{name}: {columns}" for name, columns in metrics.items())
        yield f"No metric was evaluated in all studies ({evaluated}), so only rounds are compared."
    elif not results.declared and any(study.declared for study in results.studies):
        yield "No target is common to all studies, so the time to a target cannot be compared."


ASSETS = Path(__file__).parent / "assets"
SIZE = 1_900_000
"""Most bytes of a page; figures that do not fit are left out, the least telling ones first."""
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGT]?B|[mµ]?s)(?!\w))|(?<=\d) (?=± )|(?<=±) ")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def page(
    results: Sequence[Results | Sweep], brief: bool = False, live: bool = False, baseline: str | None = None
) -> str:
    """Make the report of one or several results and sweeps as HTML.

    ``brief``: with the most telling figures alone; ``live``: it asks the server that it came from for news;
    ``baseline``: the protocol that the others are compared with, where a study has it.

    Raises ResultsError for a damaged table, an unknown baseline, and a study named twice.
    """
    ink = Ink()
    alone = [each for each in results if not isinstance(each, Sweep)]
    whole = united(alone, baseline)
    parts = len(alone) + isinstance(whole, JoinedResults)
    together = joint(whole, ink, 1 / parts) if isinstance(whole, JoinedResults) else None
    studies = [
        _section(_against(each, baseline), ink, f"s{number}", brief, 1 / parts) for number, each in enumerate(alone)
    ]
    sweeps = [
        sweep_section(each, ink, f"sweep{number}") for number, each in enumerate(results) if isinstance(each, Sweep)
    ]
    charted: list[Together | Section] = [*([together] if together else []), *studies]
    sections: list[Together | Section | SweepSection] = [*charted, *sweeps]
    data = {each.key: embedded(each.data) for each in charted}
    content: dict[str, Any] = {"together": together, "studies": studies, "sweeps": sweeps, "data": data, "ink": ink}
    content |= {"brief": brief, "live": live}
    nothing: dict[str, set[str]] = {each.key: set() for each in sections}
    room = SIZE - len(rendered("page.html.jinja", shown=nothing, **content).encode())
    shown = {each.key: _fitting(each.figures, room // len(sections)) for each in sections}
    with naming(alone[0].scenario if len(results) == len(alone) == 1 else {}):
        return rendered("page.html.jinja", shown=shown, **content)


def _section(results: Results, ink: Ink, key: str, brief: bool, share: float) -> Section:
    with naming(results.scenario):
        return section(results, ink, key, brief, share)


def _against(results: Results, baseline: str | None) -> Results:
    """Compare a study with the baseline, if it has that protocol."""
    return results.against(baseline) if baseline in results.protocols else results


def waiting(title: str, lines: Sequence[str]) -> str:
    """Make the page that stands for a report before the first run has ended."""
    return rendered("waiting.html.jinja", title=title, lines=lines, ink=Ink(), live=True)


def rendered(template: str, folders: Sequence[Path] = (ASSETS,), **content: Any) -> str:
    """Render a template of one of these folders, with their scripts and styles as ``assets`` by file name.

    The text ``SCRIPT-HASHES`` in it becomes the hashes of its scripts, for its Content-Security-Policy.
    """
    loader = FileSystemLoader(folders)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_with_names
    )
    environment.filters["tied"] = _tied
    assets = {
        path.name: Markup(path.read_text(encoding="utf-8")) for folder in folders for path in folder.glob("*.[cj]s*")
    }
    html = printable(environment.get_template(template).render(assets=assets, version=__version__, **content))
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(html))
    return html.replace("SCRIPT-HASHES", " ".join(f"'sha256-{each}'" for each in hashes), 1)


def _with_names(value: Any) -> Any:
    """Name the parties in plain text, before it is escaped; what is markup already has been."""
    return titled(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _tied(text: str) -> str:
    """Keep numbers and their units on one line."""
    return _UNIT.sub("\u00a0", text)


def _fitting(figures: Sequence[Drawn], room: int) -> set[str]:
    """Name the first figures that fit into so many bytes together."""
    names = set()
    for figure in figures:
        room -= len(figure.svg)
        if room >= 0:
            names.add(figure.name)
    return names
