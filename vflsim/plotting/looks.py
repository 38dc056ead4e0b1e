"""How protocols look and are called in all figures: styles, labels, captions, and a style file to begin with."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib as mpl

from vflsim.kinds import TABLES
from vflsim.plotting.style import Picture
from vflsim.plotting.theme import COLUMNS, LINES, ProtocolLook, current
from vflsim.results.read import JoinedResults, Results
from vflsim.results.sweeps import Sweep
from vflsim.scenario.models import Scenario
from vflsim.tables.formats import escaped

# --- protocol style ---------------------------------------------------------------------------------------------------


PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#DB84B8", "#4D4D4D", "#E69F00", "#56B4E9",
    "#332288", "#882255", "#8C8C1F", "#AA4499", "#117733", "#A0522D", "#44AA99",
)  # fmt: skip
"""Safe for colour-blind readers: Okabe and Ito's colours without yellow, then darker ones in the manner of Paul Tol's.

The pink is lighter than Okabe and Ito's, which readers who lack red confuse with the blue.
"""


DASHES: tuple[Any, ...] = tuple(LINES.values())


_MARKERS = ("o", "s", "D", "^", "*", "v", "P", "X", "<", ">", "p", "h", "d")


_SHADES = (0.0, 0.38, -0.4)
"""Shades of up to three entries of one kind: towards white (positive) or black."""


_RAMP = (0.6, -0.6)
"""Shades of the first and the last of more entries of one kind; those between are spread evenly."""


_PLACES = len(PALETTE) * len(_MARKERS)
"""Places with different pairs of colour and marker: the numbers of colours and of markers have no common divisor."""


@dataclass(frozen=True)
class Style:
    """Look of one protocol in every figure."""

    color: str
    dash: Any
    marker: str
    hollow: bool = False

    @property
    def fill(self) -> str:
        """Colour of the inside of the marker."""
        return "white" if self.hollow else self.color


def protocol_styles(shown: Results | Sweep | Mapping[str, str]) -> dict[str, Style]:
    """Return the look of every protocol of these results, or of these kinds by name.

    A kind has its colour and marker whatever is drawn beside it. Entries of one kind differ in shade, line and
    marker fill, by their order in the scenario.
    """
    kinds = shown if isinstance(shown, Mapping) else kinds_of(shown)
    before: Counter[int] = Counter()
    entries = Counter(map(_place, kinds.values()))
    styles = {}
    for name, kind in kinds.items():
        place = _place(kind)
        styles[name] = look(place, before[place], entries[place])
        before[place] += 1
    given = {each.label or name: each for name, each in current().protocols.items()}
    return {name: _restyled(style, given[name]) if name in given else style for name, style in styles.items()}


def _restyled(style: Style, given: ProtocolLook) -> Style:
    """Return a look with what a style file says of it; a colour or a marker of its own is filled."""
    dash = style.dash if given.line is None else LINES[given.line]
    hollow = style.hollow and given.color is None and given.marker is None
    return Style(given.color or style.color, dash, given.marker or style.marker, hollow)


def look(place: int, entry: int = 0, entries: int = 1) -> Style:
    """Return the look of the ``entry``-th of so many protocols (from 0) of the kind at this place of the table."""
    color, line = PALETTE[place % len(PALETTE)], place if current().grey else place // 7
    dash = DASHES[(line + entry) % len(DASHES)]
    few = entries <= len(_SHADES)
    shade = _SHADES[entry] if few else _RAMP[0] + (_RAMP[1] - _RAMP[0]) * entry / (entries - 1)
    return Style(shaded(color, shade), dash, _MARKERS[place % len(_MARKERS)], entry % 2 == 1)


def kinds_of(*shown: Results | Sweep) -> dict[str, str]:
    """Return the kind of every protocol of the scenarios by name; a class of the user's own is named by its path."""
    kinds: dict[str, str] = {}
    for results in (study for each in shown for study in (each.results if isinstance(each, Sweep) else [each])):
        entries = {name: _kind(entry) for name, entry in results.scenario["protocols"].items()}
        for name in (*entries, *results.protocols):
            kinds.setdefault(name, entries.get(name) or name)
    return kinds


def kinds_in(scenario: Scenario) -> dict[str, str]:
    """Return the kind of every protocol of a scenario, as :func:`kinds_of` names them."""
    kinds = {}
    for name, entry in scenario.protocols.items():
        kind = type(entry.protocol)
        listed = kind in TABLES["protocols"]
        kinds[name] = str(kind.model_fields["kind"].default) if listed else f"{kind.__module__}:{kind.__qualname__}"
    return kinds


def _kind(entry: Any) -> str:
    return str(entry.get("path", entry.get("kind", ""))) if isinstance(entry, Mapping) else str(entry or "")


def _place(kind: str) -> int:
    """Return a kind's place in the table of protocols; that of another kind follows from its name alone."""
    known = _known()
    return known[kind] if kind in known else len(known) + crc32(kind.encode()) % (_PLACES - len(known))


@cache
def _known() -> dict[str, int]:
    return {part.model_fields["kind"].default: place for place, part in enumerate(TABLES["protocols"])}


def shaded(color: str, amount: float) -> str:
    """Mix a colour with white (positive ``amount``, up to 1) or black (negative)."""
    end = 1.0 if amount > 0 else 0.0
    red, green, blue = (part + abs(amount) * (end - part) for part in mpl.colors.to_rgb(color))
    return mpl.colors.to_hex((red, green, blue))


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


SHOWN = {
    "time": "The metric against virtual time",
    "rounds": "The metric against server steps",
    "bytes": "The metric against the bytes sent by all parties",
    "energy": "The metric against the energy of all parties",
    "epsilon": "The metric against the privacy spent",
    "target": "What reaching the target costs",
    "speedup": "How many times faster each protocol is",
    "durations": "How long rounds last",
    "survival": "How rare long rounds are",
    "waited": "Which clients the rounds waited for",
    "breakdown": "Where a round’s time goes",
    "staleness": "How old the clients’ contributions are",
    "answers": "What the servers answer by a deadline",
    "utilisation": "How busy the links are",
    "timeline": "What each party does, and when",
}
"""What every figure of a study shows, by its name."""


def caption(results: Results | Sweep, kind: str, figure: Picture) -> str:
    """Write the caption of a figure: ``The metric (test accuracy) against virtual time, quickstart: …``.

    A figure of a sweep, or of a class from outside, is described by its axes.
    """
    axes = [each for each in figure.axes if each.get_visible()]
    named = next((words for each in axes if (words := _one_line(each.get_ylabel()))), "") or _one_line(
        figure.get_supylabel()
    )
    if isinstance(results, Sweep):
        bars = [_one_line(each.get_ylabel()) for each in axes if each.get_label() == "<colorbar>"]
        shown, over = (bars or [named])[0], ", ".join(axis.title for axis in results.axes)
        text = f"{shown[:1].upper()}{shown[1:]} against {over}"
    else:
        text = SHOWN.get(kind, f"{named[:1].upper()}{named[1:]}" or "Results")
        text = text.replace("The metric", f"The metric ({named})") if named else text
    name = results.scenario if isinstance(results, Sweep) else results.name
    notes = [line for line in figure.explained if line != name]
    notes += [_one_line(note.get_text()) for note in figure.notes.values()]
    notes = [*dict.fromkeys(note.removeprefix(f"{name}: ").removeprefix(f"{name}, ") for note in notes if note)]
    return f"{text}, {name}" + (f": {'; '.join(notes)}." if notes else ".")


def written(results: Results | Sweep, kind: str, figure: Picture, place: Path) -> dict[Path, str | bytes]:
    """Return the files with the caption of a figure that is saved as ``place``: plain text, and a LaTeX environment.

    The environment is to be read by ``\\input``; a figure that is wider than a column spans both.
    """
    words, wide = caption(results, kind, figure), bool(figure.get_figwidth() > 1.1 * COLUMNS["single"])
    star, width = "*" * wide, "text" if wide else "column"
    lines = [
        rf"\begin{{figure{star}}}",
        r"  \centering",
        rf"  \includegraphics[width=\{width}width]{{{place.stem}}}",
        rf"  \caption{{{escaped(words)}}}",
        rf"  \label{{fig:{place.stem}}}",
        rf"\end{{figure{star}}}",
    ]
    return {place.with_suffix(".txt"): f"{words}\n", place.with_suffix(".tex"): "\n".join(lines) + "\n"}


def _one_line(words: str) -> str:
    return " ".join(words.split())
