"""The appearance of figures: named styles, Matplotlib style files, size and title; the style of each protocol."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
from matplotlib.lines import Line2D
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from vflsim.errors import ResultsError, ScenarioError
from vflsim.files import text
from vflsim.vocabulary.plain_yaml import parse_value

SUFFIXES = (".yaml", ".yml")


COLUMNS = {"single": 3.5, "double": 7.16}
"""Widths of a figure in one column of a paper, or across both, in inches (those of the IEEE)."""


LINES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 1.5)), "dotted": (0, (1, 1)), "dashdot": (0, (5, 1.5, 1, 1.5))}
"""The lines of protocols by name."""


def _known_colour(value: str) -> str:
    if not mpl.colors.is_color_like(value):
        raise ValueError(f'{value!r} is no colour; allowed: "#0072B2", or a name such as navy')
    return str(mpl.colors.to_hex(value))


def _known_marker(value: str) -> str:
    if value not in Line2D.filled_markers:
        raise ValueError(f"{value!r} is no marker; allowed: {' '.join(map(str, Line2D.filled_markers))}")
    return value


def _known_line(value: str) -> str:
    if value not in LINES:
        raise ValueError(f"{value!r} is no line; allowed: {', '.join(LINES)}")
    return value


class ProtocolLook(BaseModel, frozen=True, extra="forbid"):
    """How one protocol looks; what is left out is as without the file."""

    label: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    color: Annotated[str, AfterValidator(_known_colour)] | None = None
    marker: Annotated[str, AfterValidator(_known_marker)] | None = None
    line: Annotated[str, AfterValidator(_known_line)] | None = None


def _different(protocols: dict[str, ProtocolLook]) -> dict[str, ProtocolLook]:
    labels = [look.label or name for name, look in protocols.items()]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"two protocols have the label {twice!r}; allowed: a label of its own for each")
    return protocols


class StyleFile(BaseModel, frozen=True, extra="forbid"):
    """A style of ``STYLES`` or a Matplotlib style file, a size, and the protocols in their order."""

    style: str = "paper"
    size: str | None = None
    protocols: Annotated[dict[str, ProtocolLook], AfterValidator(_different)] = {}


def read_style(path: Path) -> StyleFile:
    """Read a style file. Raises ResultsError, with the line, for anything that it may not say."""
    try:
        value, lines = parse_value(text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"write one: vflsim plot RESULTS --new-style {path}"
        raise ResultsError(str(error), str(path), "a style file", remedy) from error
    except ScenarioError as error:
        raise ResultsError(error.what, error.where, error.allowed) from error
    try:
        file = StyleFile.model_validate({} if value is None else value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = tuple(part for part in first["loc"] if isinstance(part, str | int))
        line = next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), 1)
        what, _, allowed = first["msg"].removeprefix("Value error, ").partition("; allowed: ")
        keys = StyleFile.model_fields if len(place) < 3 else ProtocolLook.model_fields
        where, what = f"{path}:{line}", f"{'.'.join(map(str, place))}: {what}"
        raise ResultsError(what, where, allowed or ", ".join(keys)) from error
    beside = path.parent / file.style
    return file.model_copy(update={"style": str(beside)}) if beside.suffix == ".mplstyle" else file


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
