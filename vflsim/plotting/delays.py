"""Plot a distribution of delays, and compare fitted distributions with observations."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from vflsim.plotting.looks import Style, look
from vflsim.plotting.style import (
    Numbers,
    Picture,
    headline,
    legend,
    log_ticks,
    picture,
    remark,
    spread_widely,
    stacked,
    x_axis,
)
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats
from vflsim.timing.measured.calibration import Calibration, FittedTime

POINTS = 2000
"""Approximate number of points of a distribution's line; its tails keep all points."""


SHORTEST, LONGEST = 1e-100, 1e100
"""Seconds that can be drawn."""


_BINS, _POINTS = 60, 800


_OBSERVED: dict[str, Any] = {"color": "#bdbdbd"}


_DOTS: dict[str, Any] = {"color": "#7a7a7a", "linewidth": 1.6}


_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))


def can_draw(delay: Delay) -> bool:
    """Whether times and densities of a delay are finite in every unit of the axes, and its bins have a width."""
    low, high = float(delay.quantile(0.5)), float(delay.support[1])
    spread = float(delay.quantile(0.999) - delay.quantile(0.001))
    longest = high if high < np.inf else float(delay.quantile(0.9999999))
    narrow = 0 < spread < max(SHORTEST, 1e-9 * low)  # its bins would have no width
    return longest <= LONGEST and (low == 0 or low >= SHORTEST) and not narrow


def fits(observed: Floats, fitted: Mapping[str, Delay], title: str) -> Picture:
    """Plot observed delays (seconds) against fitted laws: densities, cdfs, Q–Q, tails.

    ``numbers``: ``bins`` (start_s, end_s, density) and ``observed`` (seconds, cdf, survival) of the observations;
    ``density`` (law, start_s, end_s, density; of a bin, or at a point if both are equal), ``cdf`` and
    ``survival`` (law, seconds, share) and ``quantiles`` (law, observed_s, fitted_s) of the laws. Densities are in 1/s.
    """
    values, (unit, factor) = np.sort(observed), _unit(float(np.median(observed)))
    styles = {name: look(place) for place, name in enumerate(fitted)}
    numbers = _of_sample(values) | _of_laws(fitted, values)
    with picture(8.2, 6.6, numbers) as figure:
        (density, ecdf), (pairs, tail) = figure.subplots(2, 2)
        handles = _draw((density, ecdf, tail), numbers, values, styles)
        for name, shown in numbers["quantiles"].groupby("law", sort=False):
            points = shown["fitted_s"] * factor, shown["observed_s"] * factor
            pairs.plot(*points, ".", color=styles[str(name)].color, markersize=2.5)
        logarithmic = bool(values[0] > 0 and values[-1] > 20 * values[0])
        low, high = values[0] * factor, values[-1] * factor
        pairs.plot([low, high], [low, high], color="#444444", linewidth=0.8, zorder=1)
        if logarithmic:
            pairs.set_yscale("log")
        pairs.set_ylabel(f"quantile observed [{unit}]")
        x_axis(pairs, "quantile fitted", unit, logarithmic=logarithmic)
        span = (low / 1.5, high * 1.5) if logarithmic else (0, high * 1.05)
        pairs.set(xlim=span, ylim=span)
        density.set_title(title, loc="left")
        remark(density, f"{len(values):,} observations; fits in order of AIC, the best first")
        legend(figure, handles, ["observed", *fitted])
    return figure


def law(delay: Delay, samples: Floats, title: str) -> Picture:
    """Plot a delay's density, cdf and survival over samples (seconds). ``numbers`` as of ``fits``."""
    values = np.sort(samples)
    numbers = _of_sample(values) | _of_laws({title: delay}, values)
    del numbers["quantiles"]
    with picture(9.6, 3.3, numbers) as figure:
        handles = _draw(figure.subplots(1, 3), numbers, values, {title: look(0)})
        headline(figure, title if len(title) <= 110 else title[:109] + "…")
        legend(figure, handles, [f"{len(values):,} samples", "distribution"])
    return figure


def _draw(panels: Sequence[Axes], numbers: Numbers, values: Floats, styles: Mapping[str, Style]) -> list[Any]:
    """Draw the densities, cdfs and survivals of ascending ``values`` and of laws; return the keys of the legend."""
    (density, ecdf, tail), (unit, factor) = panels, _unit(float(np.median(values)))
    bins, observed = numbers["bins"], numbers["observed"].iloc[_kept(len(values))]
    handles = [density.stairs(bins["density"] / factor, _bounds(bins) * factor, fill=True, **_OBSERVED)]
    ecdf.plot(observed["seconds"] * factor, observed["cdf"], drawstyle="steps-post", **_DOTS)
    beyond = observed[(observed["survival"] > 0) & (observed["seconds"] > 0)]
    tail.plot(beyond["seconds"] * factor, beyond["survival"], drawstyle="steps-post", **_DOTS)
    for name, style in styles.items():
        bins, *lines = (numbers[each][numbers[each]["law"] == name] for each in ("density", "cdf", "survival"))
        handles.append(_density(density, bins, factor, style))
        for axes, line in zip((ecdf, tail), lines, strict=True):
            axes.plot(line["seconds"] * factor, line["share"], **_look_of(style))
    density.set_ylabel(f"density [1/{unit}]")
    ecdf.set_ylabel("share of delays up to x")
    low, high = _window(values)
    for axes in (density, ecdf):
        x_axis(axes, "delay", unit, logarithmic=False)
        axes.set_xlim((0.0 if low < 0.3 * high else low) * factor, high * factor)
    density.set_ylim(bottom=0)
    ecdf.set_ylim(0, 1.02)
    tail.set_ylim(0.5 / len(values), 1.3)  # first: a logarithmic axis without positive values has no limits
    tail.set_yscale("log")
    tail.set_ylabel("share of delays above x")
    low, high = _tail_window(values)
    tail.set_xlim(low * factor, high * factor)  # before the axis chooses its labels
    x_axis(tail, "delay", unit, logarithmic=True)
    tail.set_xlim(low * factor, high * factor)
    return handles


def _unit(seconds: float) -> tuple[str, float]:
    """Choose the unit in which a time is neither tiny nor huge."""
    for unit, factor in _UNITS:
        if seconds * factor >= 1:
            return unit, factor
    return _UNITS[0]


def _window(values: Floats) -> tuple[float, float]:
    """Choose the window of densities and cdfs: without the last half per cent, because of long tails."""
    low, high = float(values[0]), float(np.quantile(values, 0.995))
    return (low, high) if high > low else (0.9 * low, 1.1 * low or 1.0)


def _edges(values: Floats) -> Floats:
    low, high = _window(values)
    return np.linspace(low, high, _BINS + 1)


def _of_sample(values: Floats) -> Numbers:
    """Compute the histogram of ascending values, and their cdf and survival."""
    edges, ranks = _edges(values), np.arange(1, len(values) + 1) / len(values)
    counts, _ = np.histogram(values, edges)
    density = counts / len(values) / np.diff(edges)
    return {
        "bins": pd.DataFrame({"start_s": edges[:-1], "end_s": edges[1:], "density": density}),
        "observed": pd.DataFrame({"seconds": values, "cdf": ranks, "survival": 1 - ranks}),
    }


def _of_laws(laws: Mapping[str, Delay], values: Floats) -> Numbers:
    low, high = _window(values)
    x = np.linspace(0.0 if low < 0.3 * high else low - 0.05 * (high - low), high, _POINTS)
    far, kept = np.geomspace(*_tail_window(values), _POINTS), _kept(len(values))
    pairs = {name: {"observed_s": values[kept], "fitted_s": delay.quantile((kept + 0.5) / len(values))}
             for name, delay in laws.items()}  # fmt: skip
    return {
        "density": stacked({name: _densities(delay, values) for name, delay in laws.items()}, "law"),
        "cdf": stacked({name: {"seconds": x, "share": delay.cdf(x)} for name, delay in laws.items()}, "law"),
        "survival": stacked({m: {"seconds": far, "share": delay.survival(far)} for m, delay in laws.items()}, "law"),
        "quantiles": stacked(pairs, "law"),
    }


def _densities(delay: Delay, values: Floats) -> dict[str, Floats]:
    """Evaluate the density at points, or per bin if the law has atoms."""
    edges = _edges(values)
    if len(delay.atoms()[0]):
        shares = np.diff(delay.cdf(edges))
        shares[0] += float(delay.cdf(edges[0]))
        return {"start_s": edges[:-1], "end_s": edges[1:], "density": shares / np.diff(edges)}
    x = np.linspace(edges[0], edges[-1], _POINTS)
    return {"start_s": x, "end_s": x, "density": delay.density(x)}


def _density(axes: Axes, bins: pd.DataFrame, factor: float, style: Style) -> Any:
    """Draw the density as a line, or per bin if the law has atoms."""
    look = _look_of(style)
    heights = bins["density"].to_numpy(np.float64) / factor
    if (bins["start_s"] < bins["end_s"]).all():
        return axes.stairs(heights, _bounds(bins) * factor, **look)
    ceiling = 3 * axes.get_ylim()[1]  # an unbounded density would flatten everything else
    if np.nanmax(heights) > ceiling:
        axes.set_ylim(top=axes.get_ylim()[1])
    return axes.plot(bins["start_s"].to_numpy() * factor, np.minimum(heights, ceiling), **look)[0]


def _bounds(bins: pd.DataFrame) -> Floats:
    edges: Floats = np.append(bins["start_s"].to_numpy(np.float64), bins["end_s"].iloc[-1])
    return edges


def _look_of(style: Style) -> dict[str, Any]:
    return {"color": style.color, "linestyle": style.dash, "linewidth": 1.3}


def _kept(count: int) -> Any:
    """Select which of ``count`` ordered values to draw: all at both ends, evenly spaced ones between."""
    if count <= POINTS:
        return np.arange(count)
    ends = POINTS // 8
    middle = np.linspace(ends, count - ends - 1, POINTS - 2 * ends).astype(np.int64)
    return np.unique(np.concatenate([np.arange(ends), middle, np.arange(count - ends, count)]))


def _tail_window(values: Floats) -> tuple[float, float]:
    """Choose the window of the survival: from the 1 % quantile to beyond the longest value."""
    high = 3 * float(values[-1]) or 1.0
    return 0.7 * max(float(np.quantile(values, 0.01)), 1e-6 * high), high


FIT_POINTS = 500
"""Quantiles, and measurements against their sizes, that are drawn of each fit."""


_PANEL = (3.2, 2.9)


_FIT_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


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
        "quantiles": stacked({_name(fit): _fit_quantiles(fit) for fit in fitted.fits}, "fit"),
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


def _fit_quantiles(fit: FittedTime) -> dict[str, Any]:
    values = np.sort(fit.values())
    levels = (np.arange(count := min(len(values), FIT_POINTS)) + 0.5) / count
    measured = values if count == len(values) else np.quantile(values, levels)
    return {"activity": fit.activity, "party": fit.party, "measured": measured, "fitted": fit.law.quantile(levels)}


def _sizes(fit: FittedTime) -> dict[str, Any]:
    chosen = np.linspace(0, len(fit.measured.size) - 1, min(len(fit.measured.size), FIT_POINTS)).astype(np.int64)
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
    unit, factor = ("", 1.0) if factors else _fit_unit(float(frame["measured"].median()))
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
        log_ticks(axes.yaxis, low, high)
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
    frame = numbers[numbers["fit"].isin([_name(fit) for fit in fits])]
    unit, factor = _fit_unit(float(frame["measured_s"].median()))
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


def _fit_unit(seconds: float) -> tuple[str, float]:
    return next(((unit, factor) for unit, factor in _FIT_UNITS if seconds * factor >= 1), _FIT_UNITS[-1])
