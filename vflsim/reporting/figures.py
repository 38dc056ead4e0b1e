"""The figures of a report as inline SVG, readable on a dark page, and the data of charts that a reader can zoom."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from markupsafe import Markup

from vflsim.errors import ResultsError
from vflsim.intervals import step_values
from vflsim.party_names import titled
from vflsim.plotting import PLOTS, plots_of, protocol_styles
from vflsim.plotting.looks import SHOWN
from vflsim.plotting.selection import length, one_seed
from vflsim.plotting.style import Numbers, Picture, frame, metric_label
from vflsim.plotting.timeline import ACTIVITIES
from vflsim.results.events import activities, activity
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.store.run import RecordedRun
from vflsim.results.sweeps import Sweep
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

BRIEF = ("time", "durations", "breakdown", "target", "waited")
"""The figures of a report that must not take long."""
_MORE = ("survival", "speedup", "answers", "staleness", "epsilon", "utilisation")
CAPTIONS = {name: SHOWN[name] for name in (*BRIEF, *_MORE)}
"""The figures of a report by name; the last ones are left out first. The page itself draws the timeline."""

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


# --- charts -----------------------------------------------------------------------------------------------------------


AXES = {
    "time": ("virtual time", "s"),
    "rounds": ("server steps", ""),
    "bytes": ("bytes sent by all parties", "B"),
    "energy": ("energy of all parties", "J"),
}
"""The horizontal axes of curves, by the name of the figure with the same numbers: label and unit."""
VALUES = 12_000
"""Most numbers of one chart of curves."""
SPANS = 9_000
"""Most activities in the timeline; every protocol has the same share of them, from its beginning."""
_OTHER = ("other", "#B07AA1", (0.34, 0.94))


def embedded(data: Any) -> Markup:
    """Write data as JSON that cannot end the script element around it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def looks(shown: Results | Mapping[str, str]) -> dict[str, Any]:
    """Return the colour, dashes (pixels), marker, and whether it is hollow, of every protocol of results, or of kinds.

    Kinds are those of protocols by name.
    """
    styles = {}
    for name, style in protocol_styles(shown).items():
        dash = [] if isinstance(style.dash, str) else [round(2 * length) for length in style.dash[1]]
        styles[name] = {"color": style.color, "dash": dash, "marker": style.marker, "hollow": style.hollow}
    return styles


def curves(results: Results, drawn: Mapping[str, Numbers], share: float = 1.0) -> dict[str, Any] | None:
    """Return the main metric of every protocol against each axis; None if no finished run was evaluated.

    Each axis has ``x`` (ascending) and, for each protocol, the ``mean`` at these points with the band ``low``, ``high``
    (None after the first end of a run). References have a level instead. ``drawn`` are the numbers of figures that have
    been drawn, by name.
    """
    try:
        metric = results.main_metric
    except NotRecordedError:
        return None
    axes = {}
    for name, (label, unit) in AXES.items():
        try:
            numbers = drawn[name] if drawn.get(name) else PLOTS[name](results, metric).numbers
        except NotRecordedError:
            continue
        column = numbers["means"].columns[1]
        means = {str(key): rows for key, rows in numbers["means"].groupby("protocol", sort=False)}
        known = {key: tuple(rows[each].to_numpy(np.float64) for each in (column, "mean", "low", "high"))
                 for key, rows in means.items()}  # fmt: skip
        grid = _grid([x for x, *_ in known.values()], max(20, int(share * VALUES) // (3 * max(1, len(known)))))
        levels = numbers.get("references", frame(("protocol", "mean"), []))
        axes[name] = {
            "label": label,
            "unit": unit,
            "x": _numbers(grid, 6),
            "series": {key: _on(grid, *rows) for key, rows in known.items()},
            "levels": dict(zip(levels["protocol"], _numbers(levels["mean"], 4), strict=True)),
        }
    targets = [target.value for target in results.targets if target.metric == metric]
    return {"metric": metric_label(metric), "targets": targets, "axes": axes} if axes else None


def timeline(results: Results, share: float = 1.0) -> dict[str, Any] | None:
    """Return the activities of all parties in one seed's runs, a panel each; None if events were not kept.

    References, which exchange no message, have no panel beside others.
    """
    try:
        recorded = one_seed(results)
    except NotRecordedError:
        return None
    runs = [run for run in recorded if not run.info.reference] or recorded
    return panels(runs, int(share * SPANS) // len(runs))


def panels(runs: Sequence[RecordedRun], most: int) -> dict[str, Any]:
    """Return up to ``most`` activities of each run, from its beginning, as the page's timeline takes them."""
    looks = ACTIVITIES | {"other": _OTHER}
    kinds = {name: dict(zip(("label", "color", "rows"), look, strict=True)) for name, look in looks.items()}
    return {"kinds": kinds, "outcomes": OUTCOMES, "panels": [_panel(run, [*kinds], most) for run in runs]}


def _panel(run: RecordedRun, kinds: list[str], most: int) -> dict[str, Any]:
    """Return a run's first activities in columns; ``until``: the end of the time that is complete."""
    events = activities(run)
    end = max(length(run), float(events.end.max(initial=0.0)))  # a failed run may end after its last row of metrics
    lasting = (events.end > events.start) | (events.outcome == OUTCOMES.index("lost"))
    order = np.flatnonzero(lasting)[np.argsort(events.start[lasting], kind="stable")]
    until = end if len(order) <= most else float(events.start[order[most]])
    first = events.where(order[:most])
    names = [activity(kind) for kind in events.kinds]
    codes = np.array([kinds.index(name if name in kinds else "other") for name in names], np.int64)
    parties = sorted({0, *run.info.participants, *first.party.tolist()})
    places = {party: place for place, party in enumerate(parties)}
    steps = run.table("rounds", ["end_s"])["end_s"].to_numpy() if run.has("rounds") else np.empty(0)
    return {
        "protocol": run.protocol,
        "seed": run.seed,
        "parties": ["server" if party == 0 else titled(f"client {party}") for party in parties],
        "until": until,
        "end": end,
        "start": _numbers(first.start, 7),
        "length": _numbers(first.end - first.start, 4),
        "party": [places[party] for party in first.party.tolist()],
        "peer": [places.get(peer, -1) for peer in first.peer.tolist()],
        "kind": codes[first.kind].tolist() if len(first) else [],
        "outcome": first.outcome.tolist(),
        "round": first.round.tolist(),
        "steps": _numbers(steps[steps <= until][:most], 7),
        "window": float(steps[min(1, len(steps) - 1)]) if len(steps) else until,
    }


def _grid(each: list[Floats], most: int) -> Floats:
    """Merge the points of all curves; if they are too many, keep some: evenly by number, by distance, and by ratio."""
    points = np.unique(np.concatenate(each))
    if len(points) <= most:
        return points
    even = np.linspace(0, len(points) - 1, most // 3)
    first = points[points > 0][0]
    ends = np.linspace(points[0], points[-1], most // 3), np.geomspace(first, points[-1], most // 3)
    near = np.minimum(np.searchsorted(points, np.concatenate(ends)), len(points) - 1)
    return points[np.unique(np.concatenate([even, near]).astype(np.int64))]


def _on(grid: Floats, x: Floats, mean: Floats, low: Floats, high: Floats) -> dict[str, list[float | None]]:
    """Evaluate a curve and its band at the grid's points up to its end."""
    within = grid <= x[-1]
    columns = {"mean": mean} if np.isnan(low).all() else {"mean": mean, "low": low, "high": high}
    return {name: _numbers(np.where(within, step_values(x, y, grid), np.nan), 4) for name, y in columns.items()}


def _numbers(values: Any, digits: int) -> list[Any]:
    """Round numbers to significant digits; None for those that are not finite."""
    plain = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in plain]
