"""Measured against fitted times: quantiles of every activity, and times against their sizes."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

from vflsim.plotting.style import Picture, legend, picture, plain_number, remark, spread_widely, stacked, x_axis
from vflsim.plotting.theme import look
from vflsim.timing.measured.calibration import Calibration, FittedTime

POINTS = 500
"""Quantiles, and measurements against their sizes, that are drawn of each fit."""
_PANEL = (3.2, 2.9)
_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def calibration(fitted: Calibration, columns: int = 3) -> Picture:
    """Plot the quantiles measured of each activity against those fitted, a colour a party, then times against sizes.

    ``numbers``: ``quantiles`` (fit, activity, party, measured, fitted; in seconds, or factors of the fitted time where
    that grows with the size) and ``sizes`` (fit, activity, party, size, measured_s, fitted_s) of the fits with a rate;
    sizes are FLOPs or bytes.
    """
    names = list(dict.fromkeys(fit.activity for fit in fitted.fits))
    parties = list(dict.fromkeys(fit.party for fit in fitted.fits))
    colours = {party: look(place).color for place, party in enumerate(parties)}
    grown = [name for name in names if any(fit.per_unit for fit in fitted.fits if fit.activity == name)]
    rows = ceil((len(names) + len(grown)) / columns)
    numbers = {
        "quantiles": stacked({_name(fit): _quantiles(fit) for fit in fitted.fits}, "fit"),
        "sizes": stacked({_name(fit): _sizes(fit) for fit in fitted.fits if fit.per_unit} or {"": _NONE}, "fit"),
    }
    with picture(_PANEL[0] * columns, _PANEL[1] * rows, numbers) as figure:
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, name in zip(places, names, strict=False):
            fits = [fit for fit in fitted.fits if fit.activity == name]
            _draw_quantiles(axes, name, fits, numbers["quantiles"], colours)
        for axes, name in zip(places[len(names) :], grown, strict=False):
            fits = [fit for fit in fitted.fits if fit.activity == name and fit.per_unit]
            _draw_sizes(axes, name, fits, numbers["sizes"], colours)
        for axes in places[len(names) + len(grown) :]:
            axes.set_visible(False)
        handles: list[Any] = [places[0].plot([], [], "o", color=colours[party], markersize=4)[0] for party in parties]
        legend(figure, handles, parties)
    return figure


_NONE: dict[str, Any] = {"activity": [], "party": [], "size": [], "measured_s": [], "fitted_s": []}


def _name(fit: FittedTime) -> str:
    return f"{fit.party}: {fit.activity}"


def _quantiles(fit: FittedTime) -> dict[str, Any]:
    values = np.sort(fit.values())
    levels = (np.arange(count := min(len(values), POINTS)) + 0.5) / count
    measured = values if count == len(values) else np.quantile(values, levels)
    return {"activity": fit.activity, "party": fit.party, "measured": measured, "fitted": fit.law.quantile(levels)}


def _sizes(fit: FittedTime) -> dict[str, Any]:
    chosen = np.linspace(0, len(fit.measured.size) - 1, min(len(fit.measured.size), POINTS)).astype(np.int64)
    return {
        "activity": fit.activity,
        "party": fit.party,
        "size": fit.measured.size[chosen],
        "measured_s": fit.measured.seconds[chosen],
        "fitted_s": fit.expected()[chosen],
    }


def _draw_quantiles(
    axes: Axes, name: str, fits: Sequence[FittedTime], numbers: pd.DataFrame, colours: Mapping[str, str]
) -> None:
    """Draw the quantiles of an activity. A factor has no unit."""
    frame = numbers[numbers["fit"].isin([_name(fit) for fit in fits])]
    factors = any(fit.per_unit and not fit.additive for fit in fits)
    unit, factor = ("", 1.0) if factors else _unit(float(frame["measured"].median()))
    if factors:  # fits of the same activity without growth are relative to their mean
        frame = frame.copy()
        for fit in fits:
            if not fit.per_unit:
                frame.loc[frame["fit"] == _name(fit), ["measured", "fitted"]] /= fit.law.expectation() or 1.0
    values = frame[["measured", "fitted"]].to_numpy(np.float64) * factor
    finite = values[np.isfinite(values) & (values > 0)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.5, 1.0)
    logarithmic = spread_widely(finite.tolist())
    low = low / 1.2 if logarithmic else 0.0
    high *= 1.2 if logarithmic else 1.05
    for fit in fits:
        shown = frame[frame["fit"] == _name(fit)]
        axes.plot(shown["fitted"] * factor, shown["measured"] * factor, ".", color=colours[fit.party], markersize=3)
    axes.plot([low, high], [low, high], color="#444444", linewidth=0.8, zorder=1)
    what = "factor" if factors else "latency" if any(fit.per_unit for fit in fits) else "time"
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=8))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    x_axis(axes, f"{what}, fitted", unit, logarithmic=logarithmic)
    axes.set_xlim(low, high)
    axes.set_ylabel(f"{what}, measured" + (f" [{unit}]" if unit else ""))
    axes.set_title(name, loc="left")
    laws = list(dict.fromkeys(fit.law.kind.replace("_", " ") for fit in fits))
    remark(axes, f"quantiles; {', '.join(laws)}")


def _draw_sizes(
    axes: Axes, name: str, fits: Sequence[FittedTime], numbers: pd.DataFrame, colours: Mapping[str, str]
) -> None:
    """Draw times against sizes, with the fitted means."""
    frame = numbers[numbers["fit"].isin([_name(fit) for fit in fits])]
    unit, factor = _unit(float(frame["measured_s"].median()))
    of = ("message", "B") if fits[0].additive else ("work", "FLOPs")
    for fit in fits:
        shown = frame[frame["fit"] == _name(fit)].sort_values("size")
        axes.plot(shown["size"], shown["measured_s"] * factor, ".", color=colours[fit.party], markersize=3, alpha=0.5)
        axes.plot(shown["size"], shown["fitted_s"] * factor, color=colours[fit.party], linewidth=1.2)
    if spread_widely(frame["measured_s"].tolist(), 20):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    x_axis(axes, of[0], of[1], logarithmic=False)
    if not fits[0].additive:
        axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel(f"time [{unit}]")
    axes.set_title(name, loc="left")
    remark(axes, "measured, and the fitted mean")


def _unit(seconds: float) -> tuple[str, float]:
    """Choose the unit in which a time is neither tiny nor huge."""
    return next(((unit, factor) for unit, factor in _UNITS if seconds * factor >= 1), _UNITS[-1])
