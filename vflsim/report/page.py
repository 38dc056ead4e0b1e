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

import vflsim
from vflsim.report.charts import embedded
from vflsim.report.figures import Drawn, Ink
from vflsim.report.section import section
from vflsim.results.read import Results

ASSETS = Path(__file__).parent / "assets"
SIZE = 1_900_000
"""Most bytes of a page; figures that do not fit are left out, the least telling ones first."""
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGT]?B|[mµ]?s)(?!\w))|(?<=\d) (?=± )|(?<=±) ")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def page(results: Sequence[Results], brief: bool = False, live: bool = False) -> str:
    """Make the report of one or several results as HTML.

    ``brief``: with the most telling figures alone; ``live``: it asks the server that it came from for news.

    Raises ResultsError for a damaged table.
    """
    ink = Ink()
    studies = [section(each, ink, f"s{number}", brief, 1 / len(results)) for number, each in enumerate(results)]
    data = {each.key: embedded(each.data) for each in studies}
    content = {"studies": studies, "data": data, "ink": ink, "brief": brief, "live": live}
    room = SIZE - len(_rendered("page.html.jinja", shown=dict.fromkeys(data, ()), **content).encode())
    shown = {each.key: _fitting(each.figures, room // len(studies)) for each in studies}
    return _rendered("page.html.jinja", shown=shown, **content)


def waiting(title: str, lines: Sequence[str]) -> str:
    """Make the page that stands for a report before the first run has ended."""
    return _rendered("waiting.html.jinja", title=title, lines=lines, ink=Ink(), live=True)


def _rendered(template: str, **content: Any) -> str:
    loader = FileSystemLoader(ASSETS)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["tied"] = _tied
    assets = {path.name: Markup(path.read_text(encoding="utf-8")) for path in ASSETS.glob("*.[cj]s*")}
    html = environment.get_template(template).render(assets=assets, version=vflsim.__version__, **content)
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
