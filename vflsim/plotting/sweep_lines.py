"""Lines over the values of one key of a sweep: their places, the axis, and what marks lower bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from vflsim.plotting.protocol_style import Style
from vflsim.plotting.style import plain_number, spread_widely
from vflsim.results.sweeps.axis import SweepAxis
from vflsim.timing.floats import Floats

_NAMED = 9
"""Most values that are all written on the axis."""
_UNEVEN = 2.0
"""Ratio of largest to smallest gap above which values count as unevenly spaced, such as 1, 2, 5, 10."""
PREFIXED = ("B", "J")
"""Units whose numbers have the prefixes of SI."""
BOUND = "more than this: not all seeds reached it"


def line(axes: Axes, own: pd.DataFrame, style: Style) -> Line2D:
    """Draw a protocol's means over ascending values, with error bars; lower bounds have hollow markers."""
    own = own.sort_values("x", kind="stable")
    at, y = own["x"].to_numpy(), own["shown"].to_numpy(dtype=np.float64)
    look: dict[str, Any] = {"color": style.color, "linestyle": style.dash, "linewidth": 1.6}
    mark: dict[str, Any] = {"marker": style.marker, "markersize": 4}
    axes.plot(at, y, **look, **mark)
    low, high = (own[name].to_numpy(dtype=np.float64) for name in ("low", "high"))
    known = ~np.isnan(low)
    bars = np.stack([y - np.maximum(low, 1e-3 * y), high - y])[:, known]  # keep bars positive for a logarithmic axis
    axes.errorbar(at[known], y[known], bars, color=style.color, linestyle="none", linewidth=1.2, capsize=2.5)
    bounds = (own["reached"] < own["n"]).to_numpy()
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


def measure_axis(axes: Axes, found: pd.DataFrame, label: str) -> None:
    """Label and scale the y axis for the values ``shown``: logarithmic if they spread widely.

    Else one of amounts begins at 0. Metrics, which have no unit, keep the range that they have.
    """
    amounts, negative = bool(found["unit"].iloc[0]), bool((found["shown"] < 0).any())
    if logarithmic := spread_widely(found["shown"]) and bool((found["shown"] > 0).all()):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=9))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif amounts and not negative:
        axes.set_ylim(bottom=0)
    if logarithmic or found["unit"].iloc[0] in PREFIXED:
        axes.yaxis.set_major_formatter(number_format(found))
    axes.set_ylabel(label)


def number_format(found: pd.DataFrame) -> Formatter:
    """Return the format of a measure's ticks: bytes and joules with the prefixes of SI."""
    return EngFormatter() if found["unit"].iloc[0] in PREFIXED else FuncFormatter(plain_number)


def tick_text(value: Any) -> str:
    """Format a value as a tick's label, one line per key."""
    if isinstance(value, Mapping):
        kind = [str(value["kind"])] if "kind" in value else []
        return "\n".join([*kind, *(f"{key} {tick_text(item)}" for key, item in value.items() if key != "kind")])
    return str(value)


def _finite(axis: SweepAxis) -> tuple[float, ...] | None:
    numbers = axis.numbers
    return numbers if numbers is not None and all(map(math.isfinite, numbers)) else None
