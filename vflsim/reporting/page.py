"""The page of a report: one HTML file that needs no network, with a section about several studies together."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vflsim.errors import printable
from vflsim.reporting import charts
from vflsim.reporting.answer import Conclusion, answer
from vflsim.reporting.charts import embedded
from vflsim.reporting.figures import CAPTIONS, Drawn, Ink, drawn
from vflsim.reporting.section import ROWS, Section, section
from vflsim.reporting.swept import SweepSection, sweep_section
from vflsim.results.joined import JoinedResults, united
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.results.tables.comparison import comparison_table, difference_table
from vflsim.results.tables.footnotes import targets_in
from vflsim.tables import DataTable
from vflsim.version import __version__

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
    data: dict[str, Any]
    figures: list[Drawn]
    differences: DataTable | None


def joint(results: JoinedResults, ink: Ink, share: float) -> Together:
    """Compare several studies; ``share`` of a page's size for the data of the chart. Raises ResultsError."""
    summary = results.estimates()
    figures = drawn(results, ink, f"{KEY}-", {name: CAPTIONS[name] for name in FIGURES[bool(targets_in(summary))]})
    numbers = {each.name: each.numbers for each in figures}
    found, remarks = answer(results, summary, numbers), [*results.remarks()]
    comparison = replace(comparison_table(results), title="Comparison of all studies")
    differences = difference_table(results, summary)
    return Together(
        key=KEY,
        answer=replace(found, sentences=(*found.sentences, *_not_common(results), *remarks)),
        comparison=replace(comparison, notes=[note for note in comparison.notes if note not in remarks]),
        data={"curves": charts.curves(results, numbers, share), "timeline": None, "looks": charts.looks(results)},
        figures=figures,
        differences=differences and differences.limited(ROWS, "vflsim.compare(…).estimates()"),
    )


def _not_common(results: JoinedResults) -> Iterator[str]:
    """State which metrics or targets prevent a closer comparison of the studies."""
    metrics = {study.name: ", ".join(study.evaluated) or "none" for study in results.studies}
    if not results.evaluated and {*metrics.values()} != {"none"}:
        own = "; ".join(f"{name}: {own}" for name, own in metrics.items())
        yield f"No metric was evaluated in all studies ({own}), so only rounds are compared."
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
    own = [each for each in results if not isinstance(each, Sweep)]
    whole = united(own, baseline)
    parts = len(own) + isinstance(whole, JoinedResults)
    together = joint(whole, ink, 1 / parts) if isinstance(whole, JoinedResults) else None
    studies = [
        section(_against(each, baseline), ink, f"s{number}", brief, 1 / parts) for number, each in enumerate(own)
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
    return rendered("page.html.jinja", shown=shown, **content)


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
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["tied"] = _tied
    assets = {
        path.name: Markup(path.read_text(encoding="utf-8")) for folder in folders for path in folder.glob("*.[cj]s*")
    }
    html = printable(environment.get_template(template).render(assets=assets, version=__version__, **content))
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(html))
    return html.replace("SCRIPT-HASHES", " ".join(f"'sha256-{each}'" for each in hashes), 1)


def _tied(text: str) -> str:
    """Keep numbers and their units on one line."""
    return _UNIT.sub("\u00a0", text)


def _fitting(figures: Sequence[Drawn], room: int) -> set[str]:
    """Name the first figures that fit into so many bytes together."""
    found = set()
    for figure in figures:
        room -= len(figure.svg)
        if room >= 0:
            found.add(figure.name)
    return found
