"""Times against two keys of a sweep: a heat map per protocol."""

from __future__ import annotations

from math import ceil
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from vflsim.plotting.style import Picture, headline, picture, spread_widely
from vflsim.plotting.sweep_lines import PREFIXED, axis_label, number_format, tick_labels
from vflsim.results.sweeps.sweep import Sweep

_COLOURS = colormaps["cividis"]
"""Perceptually uniform, and readable for the colour-blind and in grey."""
_COLUMNS, _WIDTH = 3, 11.0
"""Most panels side by side, and the inches that they may take."""
_CELL = (0.5, 0.36)
"""Inches of a cell."""
_LEAST, _TITLES = 2.5, 1.0
"""Inches that a figure is high at least, of which titles and the lower axis take as many: labels need the rest."""
_LETTERS = 14
"""Letters of an axis's label that an inch has room for."""
_LIGHT = 0.5
"""The share of the colour scale above which text is black."""
_EMPTY = "#dddddd"
_BLACK, _WHITE = "#000001", "#fffffe"  # no greys: a report on a dark page inverts greys, but not colour maps


def heat_map(sweep: Sweep, found: pd.DataFrame, label: str, note: str) -> Picture:
    """Draw a panel per protocol over the values of two keys; the colour and the number in a cell are its mean.

    ``found`` has the means in ``shown``. Hatched cells with ">" are lower bounds: not all seeds reached the target.
    Grey cells have no value: all runs failed or diverged, or have not finished. ``numbers``: ``times`` (``found`` with
    a column for each key).
    """
    across, up = (axis.distinct for axis in sweep.axes)
    names = list(sweep.protocols)
    size = max(1.6, _CELL[0] * len(across.values) + 0.35), max(1.1, _CELL[1] * len(up.values) + 0.5)
    columns = max(1, min(_COLUMNS, len(names), int(_WIDTH / size[0])))
    rows = ceil(len(names) / columns)
    least, most = found["shown"].min(), found["shown"].max()
    logarithmic = spread_widely(found["shown"]) and least > 0
    amounts = bool(found["unit"].iloc[0])  # metrics, which have no unit, keep the range that they have
    norm = LogNorm(least, most) if logarithmic else Normalize(0 if least > 0 and amounts else least, most)
    keys = {axis.name: [axis.values[place] for place in found["position"]] for axis in sweep.axes}
    height = max(size[1] * rows + 0.75, _LEAST)
    with picture(size[0] * columns + 1.4, height, {"times": found.assign(**keys)}) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, name in zip(panels.flat, names, strict=False):
            _cells(axes, sweep, found[found["protocol"] == name], name, norm)
            axes.set_xticks(range(len(across.values)), tick_labels(across))
            axes.set_yticks(range(len(up.values)), tick_labels(up))
            axes.set_xlim(-0.5, len(across.values) - 0.5)
            axes.set_ylim(-0.5, len(up.values) - 0.5)
            axes.grid(False)
            axes.tick_params(length=0, labelbottom=True)
            axes.spines[:].set_visible(False)
            axes.set_title(name, loc="left")
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        words = "\n".join(wrap(label, int((height - _TITLES) * _LETTERS)))
        bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=panels, label=words, aspect=25, pad=0.02)
        if logarithmic:
            bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 300 * least else (1,), numticks=9))
        bar.ax.yaxis.set_major_formatter(number_format(found))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
        bar.ax.grid(False)
        figure.supxlabel(axis_label(across), fontsize=9)
        figure.supylabel(axis_label(up), fontsize=9)
        bounds = "; hatched: more than this, since not all seeds reached it" if _bounds(found).any() else ""
        headline(figure, sweep.scenario, f"{note}{bounds}")
    return figure


def _cells(axes: Axes, sweep: Sweep, own: pd.DataFrame, name: str, norm: Normalize) -> None:
    """Draw the cells of a protocol; points without a value are grey, with the reason."""
    across, up = (axis.distinct for axis in sweep.axes)
    rows: dict[int, Any] = {row["position"]: row for _, row in own.iterrows()}
    for position, point in enumerate(sweep.points):
        at = across.place(point[0]), up.place(point[1])
        if (row := rows.get(position)) is None:
            _cell(axes, at, _EMPTY, _why(sweep, position, name), "#444444")
            continue
        share = float(norm(row["shown"]))
        bound = bool(_bounds(row))
        text = f"{'> ' if bound else ''}{_number(row['shown'], row['unit'])}"
        _cell(axes, at, _COLOURS(share), text, _BLACK if share > _LIGHT else _WHITE, bound)
    for point in sweep.pending:
        _cell(axes, (across.place(point[0]), up.place(point[1])), _EMPTY, "not\nfinished", "#444444")


def _cell(axes: Axes, at: tuple[int, int], colour: Any, text: str, ink: str, hatched: bool = False) -> None:
    x, y = at
    if hatched:
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=ink, hatch="////", linewidth=0))
    axes.add_patch(
        Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none" if hatched else colour, edgecolor="white", linewidth=0.8)
    )
    frame = {"facecolor": colour, "edgecolor": "none", "pad": 1.0} if hatched else None
    axes.text(x, y, text, ha="center", va="center", fontsize=6 if "\n" in text else 7.5, color=ink, bbox=frame)


def _bounds(rows: Any) -> Any:
    """Return which means are lower bounds."""
    return rows["reached"] < rows["n"]


def _why(sweep: Sweep, position: int, name: str) -> str:
    """State why a point has no value for a protocol."""
    lost = [run for run in sweep.results[position].failed if run.protocol == name]
    return "—" if not lost else "diverged" if all(run.diverged for run in lost) else "failed"


def _number(value: float, unit: str) -> str:
    """Format a number with three digits, without powers of ten; bytes and joules with the prefixes of SI."""
    if unit in PREFIXED:
        return EngFormatter(sep="")(float(f"{value:.3g}"))
    return f"{float(f'{value:.3g}'):,.10g}"
