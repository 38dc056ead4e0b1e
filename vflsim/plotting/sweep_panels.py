"""Times against the keys of a sweep: heat maps of two keys, and small multiples for three or more."""

import math
from collections.abc import Mapping
from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    Formatter,
    FuncFormatter,
    NullFormatter,
    NullLocator,
)

from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.style import Picture, headline, legend, log_ticks, picture, plain_number, sides, spread_widely
from vflsim.plotting.theme import current
from vflsim.results.sweeps import Sweep
from vflsim.results.sweeps.axis import SweepAxis
from vflsim.timing.floats import Floats

_NAMED = 9
"""Most values that are all written on the axis."""
_UNEVEN = 2.0
"""Ratio of largest to smallest gap above which values count as unevenly spaced, such as 1, 2, 5, 10."""
PREFIXED = ("B", "J")
"""Units whose numbers have the prefixes of SI."""
BOUND = "more than this: not all seeds reached it"


def line(axes: Axes, means: pd.DataFrame, style: Style) -> Line2D:
    """Draw a protocol's means over ascending values, with error bars; lower bounds have hollow markers."""
    means = means.sort_values("x", kind="stable")
    at, y = means["x"].to_numpy(), means["shown"].to_numpy(dtype=np.float64)
    look: dict[str, Any] = {"color": style.color, "linestyle": style.dash, "linewidth": 1.6}
    mark: dict[str, Any] = {"marker": style.marker, "markersize": 4}
    axes.plot(at, y, **look, **mark)
    low, high = (means[name].to_numpy(dtype=np.float64) for name in ("low", "high"))
    known = ~np.isnan(low)
    bars = np.stack([y - np.maximum(low, 1e-3 * y), high - y])[:, known]  # keep bars positive for a logarithmic axis
    axes.errorbar(at[known], y[known], bars, color=style.color, linestyle="none", linewidth=1.2, capsize=2.5)
    bounds = (means["reached"] < means["n"]).to_numpy()
    axes.plot(at[bounds], y[bounds], linestyle="none", color=style.color, markerfacecolor="white", zorder=3, **mark)
    return Line2D([], [], **look, **mark)


def bound_handle() -> Artist:
    """Make the legend's mark for lower bounds, which ``BOUND`` explains."""
    return Line2D([], [], linestyle="none", marker="o", color="#555555", markerfacecolor="white")


def places(axis: SweepAxis) -> list[float]:
    """Place each distinct value at its number, in its unit; side by side unless all are finite numbers."""
    if (numbers := _finite(axis)) is None:
        return [float(position) for position in range(len(axis.values))]
    _, factor = axis.unit
    return [number / factor for number in numbers]


def value_axis(axes: Axes, axis: SweepAxis, x: Floats, labels: bool = True) -> None:
    """Label and scale the x axis for distinct values at ``x``; without ``labels`` only scale it."""
    if _finite(axis) is None:
        axes.set_xticks(x, [tick_text(value) for value in axis.values])
        axes.set_xlim(-0.4, len(x) - 0.6)
    else:
        if (x > 0).all() and spread_widely(x) and spread_widely(np.diff(np.sort(x)), _UNEVEN):
            axes.set_xscale("log")
        if len(x) <= _NAMED:
            axes.xaxis.set_major_locator(FixedLocator(sorted(x)))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    if labels:
        axes.set_xlabel(axis_label(axis))


def tick_labels(axis: SweepAxis, units: bool = False) -> list[str]:
    """Write the values: numbers in the unit of the axis (which ``units`` adds), others as they are."""
    unit, factor = axis.unit
    if (numbers := _finite(axis)) is None:
        return [tick_text(value) for value in axis.values]
    return [plain_number(number / factor) + f" {unit}" * (units and bool(unit)) for number in numbers]


def axis_label(axis: SweepAxis) -> str:
    """Return the key in words, with the unit of its values if all are numbers."""
    unit, _ = axis.unit
    return f"{axis.title} [{unit}]" if unit and _finite(axis) is not None else axis.title


def measure_axis(axes: Axes, means: pd.DataFrame, label: str) -> None:
    """Label and scale the y axis for the values ``shown``: logarithmic if they spread widely.

    Else one of amounts begins at 0. Metrics, which have no unit, keep the range that they have.
    """
    amounts, negative = bool(means["unit"].iloc[0]), bool((means["shown"] < 0).any())
    if logarithmic := spread_widely(means["shown"]) and bool((means["shown"] > 0).all()):
        axes.set_yscale("log")
        log_ticks(axes.yaxis, *axes.get_ylim(), most=9)
    elif amounts and not negative:
        axes.set_ylim(bottom=0)
    if logarithmic or means["unit"].iloc[0] in PREFIXED:
        axes.yaxis.set_major_formatter(number_format(means))
    axes.set_ylabel(label)


def number_format(means: pd.DataFrame) -> Formatter:
    """Return the format of a measure's ticks: bytes and joules with the prefixes of SI."""
    return EngFormatter() if means["unit"].iloc[0] in PREFIXED else FuncFormatter(plain_number)


def tick_text(value: Any) -> str:
    """Format a value as a tick's label, one line per key."""
    if isinstance(value, Mapping):
        kind = [str(value["kind"])] if "kind" in value else []
        return "\n".join([*kind, *(f"{key} {tick_text(item)}" for key, item in value.items() if key != "kind")])
    return str(value)


def _finite(axis: SweepAxis) -> tuple[float, ...] | None:
    numbers = axis.numbers
    return numbers if numbers is not None and all(map(math.isfinite, numbers)) else None


_COLOURS = colormaps["cividis"]
"""Perceptually uniform, and readable for the colour-blind and in grey."""
_COLUMNS, _WIDTH = 3, 11.0
"""Most panels side by side, and the inches that they may take."""
_CELL = (0.5, 0.36)
"""Inches of a cell."""
_BAR = 1.4
"""Inches that the colour scale and the labels at the left take."""
_LEAST_PANEL = 1.1
"""Inches that a panel is wide at least, where several are side by side."""
_LEAST = 2.5
"""Inches that a figure is high at least: labels need them."""
_LIGHT = 0.5
"""The share of the colour scale above which text is black."""
_EMPTY = "#dddddd"
_BLACK, _WHITE = "#000001", "#fffffe"  # no greys: a report on a dark page inverts greys, but not colour maps


def _with_keys(sweep: Sweep, means: pd.DataFrame) -> pd.DataFrame:
    return means.assign(**{each.name: [each.values[place] for place in means["position"]] for each in sweep.axes})


def heat_map(sweep: Sweep, means: pd.DataFrame, label: str, note: str) -> Picture:
    """Draw a panel per protocol over the values of two keys; the colour and the number in a cell are its mean.

    ``means`` has the means in ``shown``. Hatched cells with ">" are lower bounds: not all seeds reached the target.
    Grey cells have no value: all runs failed or diverged, or have not finished. ``numbers``: ``times`` (``means`` with
    a column for each key).
    """
    across, up = (axis.distinct for axis in sweep.axes)
    names = list(sweep.protocols)
    size = max(1.6, _CELL[0] * len(across.values) + 0.35), max(1.1, _CELL[1] * len(up.values) + 0.5)
    columns = max(1, min(_COLUMNS, len(names), int(_WIDTH / size[0])))
    wide, _ = current().inches(size[0] * columns + _BAR, 1.0)
    columns = max(1, min(columns, int((wide - 0.6 * _BAR) / _LEAST_PANEL)))
    rows = ceil(len(names) / columns)
    least, most = means["shown"].min(), means["shown"].max()
    logarithmic = spread_widely(means["shown"]) and least > 0
    amounts = bool(means["unit"].iloc[0])  # metrics, which have no unit, keep the range that they have
    norm = LogNorm(least, most) if logarithmic else Normalize(0 if least > 0 and amounts else least, most)
    height = max(size[1] * rows + 0.75, _LEAST)
    with picture(size[0] * columns + _BAR, height, {"times": _with_keys(sweep, means)}) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, name in zip(panels.flat, names, strict=False):
            _cells(axes, sweep, means[means["protocol"] == name], name, norm)
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
        bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=panels, label=label, aspect=25, pad=0.02)
        if logarithmic:
            log_ticks(bar.ax.yaxis, least, most, most=9)
        bar.ax.yaxis.set_major_formatter(number_format(means))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
        bar.ax.grid(False)
        figure.supxlabel(axis_label(across), fontsize=9)
        figure.supylabel(axis_label(up), fontsize=9)
        bounds = "; hatched: more than this, since not all seeds reached it" if _bounds(means).any() else ""
        headline(figure, sweep.scenario, f"{note}{bounds}")
    return figure


def _cells(axes: Axes, sweep: Sweep, means: pd.DataFrame, name: str, norm: Normalize) -> None:
    """Draw the cells of a protocol; points without a value are grey, with the reason."""
    across, up = (axis.distinct for axis in sweep.axes)
    rows: dict[int, Any] = {row["position"]: row for _, row in means.iterrows()}
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
    return rows["reached"] < rows["n"]


def _why(sweep: Sweep, position: int, name: str) -> str:
    lost = [run for run in sweep.results[position].failed if run.protocol == name]
    return "—" if not lost else "diverged" if all(run.diverged for run in lost) else "failed"


def _number(value: float, unit: str) -> str:
    """Format a number with three digits, without powers of ten; bytes and joules with the prefixes of SI."""
    if unit in PREFIXED:
        return EngFormatter(sep="")(float(f"{value:.3g}"))
    return f"{float(f'{value:.3g}'):,.10g}"


_PANEL = (2.3, 1.9)
"""Inches of one panel."""


def small_multiples(sweep: Sweep, means: pd.DataFrame, label: str, note: str) -> Picture:
    """Draw lines against the first key: a column of panels per value of the second, a row per value of the others.

    ``means`` has the means in ``shown``. All panels have the same axes. Hollow markers are lower bounds: not all seeds
    reached the target. ``numbers``: ``times`` (``means`` with a column for each key, and x: the value's place).
    """
    first, second, *others = (axis.distinct for axis in sweep.axes)
    x = np.asarray(places(first))
    at = np.array([[axis.distinct.place(value) for value in axis.values] for axis in sweep.axes])[:, means["position"]]
    means = _with_keys(sweep, means.assign(x=x[at[0]]))
    rows = list(product(*(range(len(axis.values)) for axis in others)))
    names = [name for name in sweep.protocols if (means["protocol"] == name).any()]
    styles = protocol_styles(sweep)
    handles: dict[str, Artist] = {}
    columns = len(second.values)
    with picture(_PANEL[0] * columns + 0.4, _PANEL[1] * len(rows) + 0.8, {"times": means}) as figure:
        panels = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
        for row, column in product(range(len(rows)), range(columns)):
            axes = panels[row, column]
            here = (at[1] == column) & np.equal(at[2:].T, rows[row]).all(axis=1)
            for name in names:
                handles[name] = line(axes, means[here & (means["protocol"] == name).to_numpy()], styles[name])
            words = [f"{second.name} = {tick_labels(second, units=True)[column]}"]
            words += [
                f"{axis.name} = {tick_labels(axis, units=True)[place]}"
                for axis, place in zip(others, rows[row], strict=True)
            ]
            axes.set_title("\n".join(words), loc="left", fontsize=8)
        value_axis(panels[0, 0], first, x, labels=False)
        measure_axis(panels[0, 0], means, "")
        for axes in panels[-1]:
            axes.set_xlabel(axis_label(first))
        sides(figure, label)
        headline(figure, sweep.scenario, note)
        if (means["reached"] < means["n"]).any():
            handles[BOUND] = bound_handle()
        legend(figure, list(handles.values()), list(handles))
    return figure
