"""Closed forms in figures: dashed black lines over simulated ones, bounds as areas, and figures of them alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from vflsim.plotting.looks import Style, protocol_styles, shaded
from vflsim.plotting.style import Picture, headline, legend, picture, remark, spread_widely, stacked, x_axis
from vflsim.results.read import Results
from vflsim.timing.floats import Floats

LOOK: dict[str, Any] = {"color": "black", "linewidth": 1.0, "linestyle": (0, (4, 2.5))}
LABEL = "closed form"
_AREA: dict[str, Any] = {"alpha": 0.25, "linewidth": 0}
_DARKER = -0.45
"""Shade of the edges of an area, which may be as narrow as a line."""
BOUNDS_LABEL = "between the bounds of a closed form"
_BEGINNING = 1e-3
"""Below this value a curve would run along the figure's edge."""
EVERYBODY = -1
"""Client number of a closed form that belongs to no single client."""


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """P(quantity ≤ x) at ascending ``x``: between ``lower`` and ``upper``, which are equal if it is known."""

    x: Floats
    lower: Floats
    upper: Floats

    @property
    def exact(self) -> bool:
        """Whether the distribution itself is known, not only bounds."""
        return bool(np.array_equal(self.lower, self.upper))

    def sides(self) -> tuple[Floats, ...]:
        """Return the distribution function, or its two bounds."""
        return (self.lower,) if self.exact else (self.lower, self.upper)

    def means(self) -> tuple[float, ...]:
        """Return the mean of a non-negative quantity, or its two bounds: ∫ P(> x) dx by the trapezoidal rule."""
        return tuple(float(self.x[0] + np.trapezoid(1 - cdf, self.x)) for cdf in self.sides())

    def columns(self) -> dict[str, Floats]:
        """Return the distribution of times as columns: ``seconds``, ``lower``, ``upper``."""
        return {"seconds": self.x, "lower": self.lower, "upper": self.upper}

    def at(self, x: Floats) -> Floats:
        """Evaluate the (lower) distribution function of an integer quantity at integers."""
        return np.concatenate([[0.0], self.lower])[np.searchsorted(self.x, x, side="right")]


def round_duration(results: Results, protocol: str) -> Curve | None:
    """Return the distribution of a protocol's round durations in seconds; None without a closed form."""
    return _curves(results, protocol, "round_duration").get(EVERYBODY)


def client_age(results: Results, protocol: str, ages: Floats) -> Floats | None:
    """Return P(client age = a) for ``ages`` from 0 up, averaged over clients; None without a closed form."""
    curves = _curves(results, protocol, "client_age")
    if not curves:
        return None
    cdf: Floats = np.mean([curve.at(ages) for curve in curves.values()], axis=0)
    return np.diff(cdf, prepend=0.0)


def draw(axes: Axes, curve: Curve, style: Style, *, survival: bool) -> None:
    """Draw the distribution function (or the survival function), or the area between its bounds."""
    first = max(int(np.searchsorted(curve.upper, _BEGINNING)) - 1, 0)  # keep the point before a step
    sides = [(1 - cdf if survival else cdf)[first:] for cdf in curve.sides()]
    area(axes, curve.x[first:], sides[0], sides[-1], style)


def area(axes: Axes, x: Floats, lower: Floats, upper: Floats, style: Style) -> None:
    """Draw a known curve as a line, and an area in the protocol's colour where only bounds are known."""
    if np.array_equal(lower, upper):
        axes.plot(x, lower, **LOOK, zorder=3)
    else:
        axes.fill_between(x, lower, upper, color=style.color, **_AREA, zorder=1.2)
        for side in (lower, upper):
            axes.plot(x, side, **{**LOOK, "color": shaded(style.color, _DARKER)}, zorder=3)


def handles(exact: Iterable[bool]) -> dict[str, Artist]:
    """Make the legend handles, by label, of closed forms that are exact, or bounds."""
    kinds = {*exact}
    known: dict[str, Artist] = {LABEL: Line2D([], [], **LOOK)} if True in kinds else {}
    edges = {"facecolor": "#88888840", "edgecolor": "#444444", "linestyle": LOOK["linestyle"]}
    return known | ({BOUNDS_LABEL: Patch(**edges)} if False in kinds else {})


def _curves(results: Results, protocol: str, quantity: str) -> dict[int, Curve]:
    table = results.closed_forms
    if table is None:
        return {}
    rows = table[(table["protocol"] == protocol) & (table["quantity"] == quantity)]
    clients = rows["client"].unique().tolist()
    return {client: _curve(rows[rows["client"] == client]) for client in sorted(clients)}


def _curve(points: pd.DataFrame) -> Curve:
    points = points.sort_values("x", kind="stable")
    return Curve(*(points[name].to_numpy(dtype=np.float64) for name in ("x", "cdf", "cdf_upper")))


_LAW_AREA: dict[str, Any] = {"alpha": 0.25, "linewidth": 0.8}
_TAIL = 1e-3
"""The axis ends where this share of rounds lasts longer."""


def round_laws(curves: Mapping[str, Curve], kinds: Mapping[str, str], title: str) -> Picture:
    """Plot the distribution of round durations by protocol: known ones as lines, bounds as areas.

    ``kinds`` are all protocols' kinds by name, which decide their look; those without a curve are named. ``numbers``:
    ``closed_form`` (protocol, seconds, lower, upper). Raises ValueError without a curve.
    """
    if not curves:
        raise ValueError("no protocol's round has a closed form")
    styles = protocol_styles(kinds)
    columns = {name: curve.columns() for name, curve in curves.items()}
    means = {name: sorted(curve.means()) for name, curve in curves.items()}
    with picture(5.6, 3.6, {"closed_form": stacked(columns)}) as figure:
        axes = figure.add_subplot()
        keys = {name: _draw(axes, curve, styles[name]) for name, curve in curves.items()}
        x_axis(axes, "round duration", "s", logarithmic=spread_widely(mean for pair in means.values() for mean in pair))
        axes.set_xlim(right=max(_end(curve) for curve in curves.values()))
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share of rounds that are over")
        headline(axes, title)
        notes = ["closed forms"] if all(curve.exact for curve in curves.values()) else [f"areas: {BOUNDS_LABEL}"]
        if none := [name for name in kinds if name not in curves]:
            notes.append(f"no distribution: {', '.join(none)}")
        remark(axes, "; ".join(notes))
        labels = [f"{name}, mean {' to '.join(f'{mean:.3g}' for mean in means[name])} s" for name in keys]
        legend(figure, [*keys.values()], labels, columns=3)
    return figure


def _draw(axes: Any, curve: Curve, style: Style) -> Artist:
    """Draw one distribution function, or the area between its bounds; return its key for the legend."""
    for side in curve.sides():
        axes.plot(curve.x, side, color=style.color, linestyle=style.dash, linewidth=1.2)
    if not curve.exact:
        axes.fill_between(curve.x, curve.lower, curve.upper, color=style.color, **_LAW_AREA)
    return Line2D([], [], color=style.color, linestyle=style.dash)


def _end(curve: Curve) -> float:
    """Return the time within which all but few rounds end."""
    return float(curve.x[min(int(np.searchsorted(curve.lower, 1 - _TAIL)), len(curve.x) - 1)])
