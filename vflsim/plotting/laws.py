"""Closed forms of round durations, without any simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.lines import Line2D

from vflsim.plotting.closed_form_curves import BOUNDS_LABEL, Curve
from vflsim.plotting.numbers import stacked
from vflsim.plotting.protocol_style import Style, protocol_styles
from vflsim.plotting.style import Picture, headline, legend, picture, remark, spread_widely, x_axis

_AREA: dict[str, Any] = {"alpha": 0.25, "linewidth": 0.8}
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
    columns = {name: {"seconds": c.x, "lower": c.lower, "upper": c.upper} for name, c in curves.items()}
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
        axes.fill_between(curve.x, curve.lower, curve.upper, color=style.color, **_AREA)
    return Line2D([], [], color=style.color, linestyle=style.dash)


def _end(curve: Curve) -> float:
    """Return the time within which all but few rounds end."""
    return float(curve.x[min(int(np.searchsorted(curve.lower, 1 - _TAIL)), len(curve.x) - 1)])
