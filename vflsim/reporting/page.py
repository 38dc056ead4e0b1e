"""The page of a report: one HTML file that needs no network, from a template that escapes all text of results."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vflsim.errors import printable
from vflsim.reporting.charts import embedded
from vflsim.reporting.figures import Drawn, Ink
from vflsim.reporting.joint import Together, joint
from vflsim.reporting.section import Section, section
from vflsim.reporting.swept import SweepSection, sweep_section
from vflsim.results.compared import united
from vflsim.results.joined import JoinedResults
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.version import __version__

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
