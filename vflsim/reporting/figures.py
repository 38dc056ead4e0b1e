"""The papers' figures as inline SVG: small, without clashing ids, and readable on a dark page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from markupsafe import Markup

from vflsim.errors import ResultsError
from vflsim.plotting import plots_of
from vflsim.plotting.looks import SHOWN
from vflsim.plotting.style import Numbers, Picture
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.sweeps.sweep import Sweep

_REPORTED = (
    "time",
    "durations",
    "breakdown",
    "target",
    "waited",
    "survival",
    "speedup",
    "answers",
    "staleness",
    "epsilon",
    "utilisation",
)
CAPTIONS = {name: SHOWN[name] for name in _REPORTED}
"""The figures of a report by name; the last ones are left out first. The page itself draws the timeline."""
BRIEF = ("time", "durations", "breakdown", "target", "waited")
"""The figures of a report that must not take long."""

_BROAD = 6.5
"""Inches from which a figure takes a line of its own."""
_CLUTTER = re.compile(r"\A.*?(?=<svg )|<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_GLYPH = re.compile(r'<path id="([^"]+)" (d="[^"]*" transform="scale\(0\.015625\)")/>')
_REFERENCE = re.compile(r'(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
_ID = re.compile(r' id="([^"]+)"')
_PATH = re.compile(r'(?<=\bd=")[^"]+')
_PLACE = re.compile(r'(?<= [xy]=")[^"]+')
_LONG = re.compile(r"-?\d+\.\d{2,}")
_GREY = re.compile(r"#([0-9a-f]{2})\1\1\b", re.IGNORECASE)


@final
@dataclass(frozen=True)
class Drawn:
    """A figure of a report; ``problem`` says why there is no ``svg`` although the results have the data."""

    name: str
    caption: str
    svg: Markup
    numbers: Numbers
    broad: bool = False
    problem: str = ""


@final
@dataclass
class Ink:
    """The common parts of all figures of a page: the shapes of letters by id, and the greys in use."""

    glyphs: dict[str, str] = field(default_factory=dict)
    greys: set[str] = field(default_factory=set)

    def inline(self, figure: Picture, prefix: str) -> Markup:
        """Render a figure as an SVG element whose own ids begin with ``prefix``.

        Greys become CSS variables, which a dark page turns round. Coordinates have one decimal: a tenth of a point.
        """
        svg = _CLUTTER.sub("", figure.rendered(".svg", letters=True).decode())
        svg = _GLYPH.sub(self._keep, svg)
        ids = {name for name in _REFERENCE.findall(svg) if name not in self.glyphs}
        svg = _ID.sub(lambda match: f' id="{prefix}{match[1]}"' if match[1] in ids else "", svg)
        svg = _REFERENCE.sub(lambda match: prefix + match[0] if match[0] in ids else match[0], svg)
        for places in (_PATH, _PLACE):
            svg = places.sub(lambda match: " ".join(_LONG.sub(_short, match[0]).split()), svg)
        self.greys |= {grey.lower() for grey in _GREY.findall(svg)}
        svg = _GREY.sub(lambda grey: f"var(--grey-{grey[1].lower()})", svg)
        return Markup(re.sub(r">\s+<", "><", svg).strip())

    def shapes(self) -> Markup:
        """Return the shapes of letters as the content of an SVG's ``defs``."""
        return Markup("".join(f'<path id="{name}" {shape}/>' for name, shape in self.glyphs.items()))

    def variables(self, dark: bool) -> str:
        """Return the declarations of the greys' CSS variables."""
        return "".join(f"--grey-{grey}:#{(_turned(grey) if dark else grey) * 3};" for grey in sorted(self.greys))

    def _keep(self, glyph: re.Match[str]) -> str:
        self.glyphs[glyph[1]] = " ".join(glyph[2].split())
        return ""


def drawn(results: Results | Sweep, ink: Ink, prefix: str, captions: Mapping[str, str]) -> list[Drawn]:
    """Draw those of the figures with these captions for which the results have data; ids begin with ``prefix``."""
    figures, known = [], plots_of(results)
    for name, caption in captions.items():
        try:
            figure = known[name](results)
            svg = ink.inline(figure, f"{prefix}{name}-")
        except NotRecordedError:
            continue
        except (ResultsError, ValueError) as error:  # a damaged table, or a name that Matplotlib cannot typeset
            figures.append(Drawn(name, caption, Markup(), {}, problem=str(error).splitlines()[0]))
            continue
        figures.append(Drawn(name, caption, svg, figure.numbers, figure.get_figwidth() > _BROAD))
    return figures


def _turned(grey: str) -> str:
    """Map black to nearly white, and white to a dark page's ground."""
    return f"{round(0xE8 + (0x1B - 0xE8) * int(grey, 16) / 255):02x}"


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
