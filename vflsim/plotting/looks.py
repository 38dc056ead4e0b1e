"""Protocols by the labels, and in the order, of a style file; and such a file to begin with."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vflsim.plotting.style_file import COLUMNS, LINES
from vflsim.plotting.theme import Style, current, protocol_styles
from vflsim.results.joined import JoinedResults
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep

_NAMING = ("protocols", "baseline")
"""The options of figures that name protocols."""


def labelled(results: Results | Sweep, options: Mapping[str, Any]) -> tuple[Results | Sweep, dict[str, Any]]:
    """Return results whose protocols have the current style's labels and order, and options that name them so."""
    looks = current().protocols
    labels = {name: look.label for name, look in looks.items() if look.label is not None}
    if isinstance(results, Sweep):
        results = replace(results, results=tuple(_renamed(study, labels) for study in results.results))
    elif looks:
        results = _renamed(results, labels)
    given = dict(options)
    for option in _NAMING:
        if isinstance(value := given.get(option), str):
            given[option] = labels.get(value, value)
        elif value is not None:
            given[option] = [labels.get(name, name) for name in value]
    return results, given


def _renamed(study: Results, labels: Mapping[str, str]) -> Results:
    looks = current().protocols
    if not looks:
        return study
    return JoinedResults.renamed(study, labels).ordered([labels.get(name, name) for name in looks])


def style_text(*shown: Results | Sweep, size: str = "single") -> str:
    """Write a style file with the protocols of these results as they look without one, to be edited."""
    looks: dict[str, Style] = {}
    for results in shown:
        looks |= {name: style for name, style in protocol_styles(results).items() if name in results.protocols}
    lines = {str(dash): name for name, dash in LINES.items()}
    rows = [
        f'  {_quoted(name)}: {{label: {_quoted(name)}, color: "{style.color.upper()}", marker: "{style.marker}", '
        f"line: {lines[str(style.dash)]}}}"
        for name, style in looks.items()
    ]
    head = [
        "# How protocols look in all figures of a paper: vflsim plot RESULTS --style FILE",
        "style: paper  # default, paper, slides, grey, or a Matplotlib style file (.mplstyle)",
        f"size: {size}  # {', '.join(COLUMNS)}, or width x height: 85x60 mm",
        "protocols:  # in this order in legends and rows; others follow",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z][\w-]*", name) else f'"{name}"'
