"""Times against one key of the scenario: a line per protocol over the values of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from vflsim.plotting import closed
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.numbers import frame, stacked
from vflsim.plotting.style import Picture, headline, legend, picture, plain_number, remark, spread_widely, target_label
from vflsim.results.read import NotRecordedError
from vflsim.results.statistics import Floats
from vflsim.results.summary import STEADY
from vflsim.results.sweep import Sweep
from vflsim.vocabulary.quantities import DIMENSIONS, split_unit

_NAMED = 9
"""Most values that are all written on the axis."""
_UNEVEN = 2.0
"""Ratio of largest to smallest gap above which values count as unevenly spaced, such as 1, 2, 5, 10."""


def round_time_against(sweep: Sweep) -> Picture:
    """Plot the mean round duration against the swept value, with 95 % intervals over seeds.

    With one seed, batch means after the warm-up give the interval. A dashed line shows the mean of the closed form, if
    there is one, an area its bounds. The axis has a scale for numbers (logarithmic if they spread widely and unevenly);
    other values stand side by side. ``numbers``: ``times`` (the columns of ``Sweep.estimates``, x: the value's place,
    shown), ``closed_form`` (protocol, x, lower, upper). Raises NotRecordedError if rounds were not kept.
    """
    single = sweep.estimates("round_duration")["n"].max() <= 1  # then the interval comes from within the run
    return _figure(sweep, STEADY if single else "round_duration", None, "mean round duration", "s")


def time_to_target_against(sweep: Sweep) -> Picture:
    """Plot the time to the scenario's (first) target against the swept value, with 95 % intervals over seeds.

    Hollow markers are lower bounds: some seed did not reach the target. ``numbers``: ``times`` as of
    :func:`round_time_against`. Raises NotRecordedError without a target.
    """
    targets = [name for summary in sweep.summaries for name in summary["target"].dropna().unique()]
    if not targets:
        raise NotRecordedError("no target, or its metric was not evaluated", str(sweep.folder))
    return _figure(sweep, "time_to_target", targets[0], f"time to {target_label(targets[0])}", "s")


def _figure(sweep: Sweep, measure: str, target: str | None, label: str, unit: str) -> Picture:
    found = sweep.estimates(measure, target)
    found = found.assign(shown=found["mean"].fillna(found["at_least"]), low=found["low"].clip(lower=0))
    found = found[found["shown"].notna()]
    if found.empty:
        raise NotRecordedError(f"the {label} is not in these results", str(sweep.folder))
    styles = protocol_styles(sweep)
    x = np.asarray(_places(sweep))
    found = found.assign(x=x[found["position"]])
    known = {name: _closed_form(sweep, name, x) for name in sweep.protocols} if target is None else {}
    theory = stacked({name: curve for name, curve in known.items() if len(curve)})
    with picture(5.6, 3.6, {"times": found.reset_index(drop=True), "closed_form": theory}) as figure:
        axes = figure.add_subplot()
        handles: list[Artist] = []
        for name in (names := [name for name in sweep.protocols if (found["protocol"] == name).any()]):
            handles.append(_line(axes, found[found["protocol"] == name], styles[name]))
            _theory(axes, theory[theory["protocol"] == name], styles[name])
        if spread_widely(found["shown"]):
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=9))
            axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{label} [{unit}]")
        _x_axis(axes, sweep, x)
        headline(axes, sweep.scenario)
        remark(axes, _remark(sweep, found, target is not None))
        exact = [bool((own["lower"] == own["upper"]).all()) for _, own in theory.groupby("protocol")]
        handles += closed.handles(exact).values()
        names += closed.handles(exact)
        if (found["reached"] < found["n"]).any():
            handles.append(Line2D([], [], linestyle="none", marker="o", color="#555555", markerfacecolor="white"))
            names.append("more than this: not all seeds reached it")
        legend(figure, handles, names)
    return figure


def _remark(sweep: Sweep, found: pd.DataFrame, costs: bool) -> str:
    several, bars = found["n"].max() > 1, found["low"].notna().any()
    note = "mean and 95 % interval over seeds" if several else "one seed"
    note += "; 95 % interval by batch means" if bars and not several else ""
    for what in ("diverged", "failed"):
        lost = [name for name in sweep.protocols if found.loc[found["protocol"] == name, what].any()]
        left_out = " left out" if what == "failed" or not costs else ""
        note += f"; {what} runs{left_out}: {', '.join(lost)}" if lost else ""
    waiting = len(sweep.pending)
    return note + (f"; {waiting} value{'s have' if waiting > 1 else ' has'} not finished" if waiting else "")


def _line(axes: Axes, own: pd.DataFrame, style: Style) -> Line2D:
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


def _closed_form(sweep: Sweep, protocol: str, x: Floats) -> pd.DataFrame:
    """Return the places of values with a closed form, and the mean round (or its two bounds) there."""
    curves = [closed.round_duration(results, protocol) for results in sweep.results]
    means = [(at, curve.means()) for at, curve in zip(x, curves, strict=True) if curve is not None]
    rows = [(at, each[0], each[-1]) for at, each in means]
    return frame(("x", "lower", "upper"), rows).sort_values("x", kind="stable")


def _theory(axes: Axes, means: pd.DataFrame, style: Style) -> None:
    """Draw a line through the means of closed forms, or an area if only bounds are known."""
    if len(means):
        x, lower, upper = (means[name].to_numpy(np.float64) for name in ("x", "lower", "upper"))
        closed.area(axes, x, lower, upper, style)


def _places(sweep: Sweep) -> list[float]:
    """Place each value at its number, in its unit; side by side unless all are finite numbers."""
    numbers = sweep.numbers
    if numbers is None or not all(map(math.isfinite, numbers)):
        return [float(position) for position in range(len(sweep))]
    _, factor = _unit(sweep)
    return [number / factor for number in numbers]


def _unit(sweep: Sweep) -> tuple[str, float]:
    """Return the unit of the first value and its size in SI units; for plain numbers ("", 1)."""
    text = sweep.values[0]
    for dimension in DIMENSIONS if isinstance(text, str) else ():
        _, unit = split_unit(text, dimension)
        if unit in dimension.units:
            return unit, float(dimension.units[unit])
    return "", 1.0


def _x_axis(axes: Axes, sweep: Sweep, x: Floats) -> None:
    unit, _ = _unit(sweep)
    numbers = sweep.numbers
    if numbers is None or not all(map(math.isfinite, numbers)):
        axes.set_xticks(x, [_text(value) for value in sweep.values])
        axes.set_xlim(-0.4, len(x) - 0.6)
        axes.set_xlabel(sweep.label)
        return
    if (x > 0).all() and spread_widely(x) and spread_widely(np.diff(np.sort(x)), _UNEVEN):
        axes.set_xscale("log")
    if len(x) <= _NAMED:
        axes.xaxis.set_major_locator(FixedLocator(sorted(x)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(f"{sweep.label} [{unit}]" if unit else sweep.label)


def _text(value: Any) -> str:
    """Format a value as a tick's label, one line per key."""
    if isinstance(value, Mapping):
        kind = [str(value["kind"])] if "kind" in value else []
        return "\n".join([*kind, *(f"{key} {_text(item)}" for key, item in value.items() if key != "kind")])
    return str(value)
