"""Colours, lines and markers of protocols: they belong to the kind of a protocol, in every figure of every study."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import matplotlib as mpl

from vflsim.kinds import TABLES
from vflsim.plotting.theme import current
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.scenario.models import Scenario

PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#DB84B8", "#4D4D4D", "#E69F00", "#56B4E9",
    "#332288", "#882255", "#8C8C1F", "#AA4499", "#117733", "#A0522D", "#44AA99",
)  # fmt: skip
"""Safe for colour-blind readers: Okabe and Ito's colours without yellow, then darker ones in the manner of Paul Tol's.

The pink is lighter than Okabe and Ito's, which readers who lack red confuse with the blue.
"""
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
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
    return styles


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
    for results in (own for each in shown for own in (each.results if isinstance(each, Sweep) else [each])):
        entries = {name: _kind(entry) for name, entry in results.scenario["protocols"].items()}
        for name in (*entries, *results.protocols):
            kinds.setdefault(name, entries.get(name) or name)
    return kinds


def kinds_in(scenario: Scenario) -> dict[str, str]:
    """Return the kind of every protocol of a scenario, as :func:`kinds_of` names them."""
    kinds = {}
    for name, entry in scenario.protocols.items():
        own = type(entry.protocol)
        listed = own in TABLES["protocols"]
        kinds[name] = str(own.model_fields["kind"].default) if listed else f"{own.__module__}:{own.__qualname__}"
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
