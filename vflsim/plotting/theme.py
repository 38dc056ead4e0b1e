"""The appearance of figures: named styles, Matplotlib style files, size and title; the style of each protocol."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib as mpl

from vflsim.errors import ResultsError
from vflsim.files import text
from vflsim.kinds import TABLES
from vflsim.plotting.style_file import COLUMNS, LINES, SUFFIXES, ProtocolLook, read_style
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.scenario.models import Scenario


def _fonts(size: float, **others: Any) -> dict[str, Any]:
    """Return the font sizes of a figure whose labels have ``size`` points."""
    sizes = {"font.size": 1.0, "axes.titlesize": 1.05, "axes.labelsize": 1.0, "legend.fontsize": 0.95}
    sizes |= {"xtick.labelsize": 0.9, "ytick.labelsize": 0.9}
    return {name: round(size * ratio, 2) for name, ratio in sizes.items()} | others


RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    **_fonts(9),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
    "hatch.linewidth": 0.6,
}
"""The settings of every figure; a style changes some of them."""


@dataclass(frozen=True)
class Appearance:
    """Settings (``rc``), the widths of narrow and of wide figures, and what the user asks for: size and title.

    Widths and sizes are in inches; without ``widths`` a figure has its own. ``lines`` is a factor of the widths of
    lines and the sizes of markers. ``grey`` draws without colours. ``columns``: whether the fonts suit a paper's.
    ``protocols`` are the looks and labels that a style file gives, in their order.
    """

    rc: Mapping[Any, Any] = field(default_factory=dict)
    widths: tuple[float, float] | None = None
    lines: float = 1.0
    grey: bool = False
    columns: bool = True
    size: tuple[float, float] | None = None
    title: str | None = None
    protocols: Mapping[str, ProtocolLook] = field(default_factory=dict)

    def inches(self, width: float, height: float) -> tuple[float, float]:
        """Return the size of a figure that is ``width`` times ``height`` inches by default."""
        if self.size is not None:
            return self.size
        if self.widths is None:
            return width, height
        wanted = self.widths[width > _WIDE]
        return wanted, height * max(wanted / width, self.rc.get("font.size", RC["font.size"]) / RC["font.size"])


_WIDE = 6.5
"""Inches above which a figure spans both columns of a page."""

STYLES: dict[str, Appearance] = {
    "default": Appearance(),
    "paper": Appearance(
        _fonts(8, **{"font.family": "STIXGeneral", "mathtext.fontset": "stix", "axes.linewidth": 0.6}),
        (COLUMNS["single"], COLUMNS["double"]),
        lines=0.75,
    ),
    "slides": Appearance(_fonts(14, **{"axes.linewidth": 1.2}), (10.0, 12.0), lines=1.6, columns=False),
    "grey": Appearance({"font.size": 9}, grey=True),
}
"""The styles by name: for the screen; for a column (or two) of a paper; for slides; for a printer without colours."""

_CURRENT: ContextVar[Appearance] = ContextVar("appearance", default=STYLES["default"])
_SIZE = re.compile(r"\s*([\d.]+)\s*([a-z]*)\s*[x×]\s*([\d.]+)\s*([a-z]*)\s*")
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
_LEAST, _MOST = 1.0, 100.0
_SETTING = re.compile(r"""\s*([\w.\-]+)\s*:\s*("[^"]*"|[^#]*?)\s*(#.*)?""")
_KEYS = ("font.", "axes.", "xtick.", "ytick.", "grid.", "legend.", "lines.", "hatch.", "mathtext.", "text.color")
_REFUSED = ("axes.prop_cycle",)


def current() -> Appearance:
    """Return the appearance of the figure that is being drawn."""
    return _CURRENT.get()


@contextmanager
def appearance(style: str | Path | None, size: str | tuple[float, float] | None, title: str | None) -> Iterator[None]:
    """Draw figures inside the context with this style, size and title.

    The size is in inches, text such as ``85x60 mm``, or a width of ``COLUMNS``, which leaves the height to the figure.
    Raises ResultsError for an unknown style, a style file with other settings than those allowed, or a wrong size.
    """
    look, size = _chosen("default" if style is None else style, size)
    if isinstance(size, str) and (column := COLUMNS.get(size)):
        if not look.columns:
            raise ResultsError(f"{style} has no columns", f"plot: size {size}", "width x height, such as 7x4")
        look, size = replace(look, widths=(column, column)), None
    inches = size_of(size) if isinstance(size, str) else size
    before = _CURRENT.set(replace(look, size=inches, title=title))
    try:
        yield
    finally:
        _CURRENT.reset(before)


def _chosen(
    style: str | Path, size: str | tuple[float, float] | None
) -> tuple[Appearance, str | tuple[float, float] | None]:
    """Return a style and a size; a style file has both, and the looks of protocols."""
    if Path(style).suffix not in SUFFIXES:
        return _style(style), size
    file = read_style(Path(style))
    return replace(_style(file.style), protocols=file.protocols), file.size if size is None else size


def size_of(text: str) -> tuple[float, float]:
    """Convert ``7x4``, ``85x60 mm`` or ``18 cm x 10 cm`` to inches. Raises ResultsError for anything else."""
    match = _SIZE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        width, first, height, last = match.groups()
        sides = (float(width) * _INCHES[first or last or "in"], float(height) * _INCHES[last or first or "in"])
        if not all(_LEAST <= side <= _MOST for side in sides):
            raise ValueError
    except (ValueError, KeyError):
        allowed = "width x height between 1 and 100 inches, such as 7x4 (inches), 85x60 mm or 18x10 cm; single, double"
        raise ResultsError(f"{text!r} is no size of a figure", "plot: size", allowed) from None
    return sides


def _style(style: str | Path) -> Appearance:
    if str(style) in STYLES:
        return STYLES[str(style)]
    if Path(style).suffix != ".mplstyle":
        allowed = f"{', '.join(STYLES)}, a style file (.yaml), or a Matplotlib style file (.mplstyle)"
        raise ResultsError(f"there is no style {str(style)!r}", "plot: style", allowed)
    return Appearance(_style_file(Path(style)))


def _style_file(path: Path) -> dict[str, Any]:
    """Read the settings of a Matplotlib style file.

    Matplotlib's own reader evaluates cycles of properties, and settings of TeX start programs: these are refused.
    """
    try:
        lines = text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(str(error), str(path), "a Matplotlib style file") from error
    settings: dict[Any, Any] = mpl.RcParams()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match, where = _SETTING.fullmatch(line), f"{path}:{number}"
        if match is None:
            raise ResultsError(f"{line.strip()!r} is no setting", where, "key: value")
        key, value = match[1], match[2].strip('"')
        if not key.startswith(_KEYS) or key in _REFUSED:
            allowed = f"keys that begin with {', '.join(_KEYS)}; without {', '.join(_REFUSED)}"
            raise ResultsError(f"{key} cannot be set", where, allowed, "remove the line")
        try:
            settings[key] = value
        except (KeyError, ValueError) as error:
            raise ResultsError(str(error).splitlines()[0], where, "a setting of Matplotlib") from error
    return {"font.size": RC["font.size"], **settings}


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
