"""What a distribution of delays looks like, and how well those that were fitted agree with what was observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from vflsim.plotting.style import Picture, Style, legend, picture, protocol_styles, remark, x_axis
from vflsim.timing.base import Delay, Floats

POINTS = 2000
"""No distribution is drawn through many more points than this; its tails keep every one of theirs."""
_BINS = 60
_OBSERVED: dict[str, Any] = {"color": "#bdbdbd"}
_DOTS: dict[str, Any] = {"color": "#7a7a7a", "linewidth": 1.6}
_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))


def fits(observed: Floats, fitted: Mapping[str, Delay], title: str) -> Picture:
    """Observed delays in seconds against the laws fitted to them: densities, cdfs, Q–Q, tails."""
    values, styles, (unit, factor) = np.sort(observed), protocol_styles([*fitted]), _unit(float(np.median(observed)))
    with picture(8.2, 6.6) as figure:
        (density, ecdf), (pairs, tail) = figure.subplots(2, 2)
        handles = [_histogram(density, values, factor, unit)]
        _steps(ecdf, values, factor)
        _tail_of_sample(tail, values, factor)
        for name, delay in fitted.items():
            handles.append(_density(density, delay, values, factor, styles[name]))
            _cdf(ecdf, delay, values, factor, styles[name])
            _survival(tail, delay, values, factor, styles[name])
            _quantile_pairs(pairs, delay, values, factor, styles[name])
        _label_densities(density, unit, values, factor)
        _label_cdfs(ecdf, unit, values, factor)
        _label_tails(tail, unit, values, factor)
        logarithmic = bool(values[0] > 0 and values[-1] > 20 * values[0])
        low, high = values[0] * factor, values[-1] * factor
        pairs.plot([low, high], [low, high], color="#444444", linewidth=0.8, zorder=1)
        if logarithmic:
            pairs.set_yscale("log")
        pairs.set_ylabel(f"quantile observed [{unit}]")
        x_axis(pairs, "quantile fitted", unit, logarithmic=logarithmic)
        span = (low / 1.5, high * 1.5) if logarithmic else (0, high * 1.05)
        pairs.set_xlim(*span)
        pairs.set_ylim(*span)
        density.set_title(title, loc="left")
        remark(density, f"{len(values):,} observations; fits in order of AIC, the best first")
        legend(figure, handles, ["observed", *fitted])
    return figure


def law(delay: Delay, samples: Floats, title: str) -> Picture:
    """A delay's density, cdf and survival, with samples (seconds) beneath them."""
    values, (unit, factor) = np.sort(samples), _unit(float(np.median(samples)))
    style = protocol_styles([title])[title]
    with picture(9.6, 3.3) as figure:
        density, ecdf, tail = figure.subplots(1, 3)
        sampled = _histogram(density, values, factor, unit)
        line = _density(density, delay, values, factor, style)
        _steps(ecdf, values, factor)
        _cdf(ecdf, delay, values, factor, style)
        _tail_of_sample(tail, values, factor)
        _survival(tail, delay, values, factor, style)
        _label_densities(density, unit, values, factor)
        _label_cdfs(ecdf, unit, values, factor)
        _label_tails(tail, unit, values, factor)
        figure.suptitle(title if len(title) <= 110 else title[:109] + "…", x=0.01, ha="left", fontsize=9.5)
        legend(figure, [sampled, line], [f"{len(values):,} samples", "distribution"])
    return figure


def _unit(seconds: float) -> tuple[str, float]:
    """The unit in which a time is neither tiny nor huge."""
    for unit, factor in _UNITS:
        if seconds * factor >= 1:
            return unit, factor
    return _UNITS[0]


def _window(values: Floats) -> tuple[float, float]:
    """What densities and cdfs show: all but the last half per cent, as a long tail would crush the rest."""
    low, high = float(values[0]), float(np.quantile(values, 0.995))
    return (low, high) if high > low else (0.9 * low, 1.1 * low or 1.0)


def _edges(values: Floats) -> Floats:
    low, high = _window(values)
    return np.linspace(low, high, _BINS + 1)


def _histogram(axes: Axes, values: Floats, factor: float, unit: str) -> Any:
    edges = _edges(values)
    counts, _ = np.histogram(values, edges)
    heights = counts / len(values) / np.diff(edges * factor)
    return axes.stairs(heights, edges * factor, fill=True, **_OBSERVED)


def _density(axes: Axes, delay: Delay, values: Floats, factor: float, style: Style) -> Any:
    """The density as a line; the share of every bin where some delays have a probability of their own."""
    edges = _edges(values)
    look: dict[str, Any] = {"color": style.color, "linestyle": style.dash, "linewidth": 1.3}
    if len(delay.atoms()[0]):
        shares = np.diff(delay.cdf(edges))
        shares[0] += float(delay.cdf(edges[0]))
        return axes.stairs(shares / np.diff(edges * factor), edges * factor, **look)
    x = np.linspace(edges[0], edges[-1], 800)
    heights = delay.density(x) / factor
    ceiling = 3 * axes.get_ylim()[1]  # a density that grows without bound would flatten everything else
    if np.nanmax(heights) > ceiling:
        axes.set_ylim(top=axes.get_ylim()[1])
    return axes.plot(x * factor, np.minimum(heights, ceiling), **look)[0]


def _steps(axes: Axes, values: Floats, factor: float) -> None:
    levels = np.arange(1, len(values) + 1) / len(values)
    kept = _kept(len(values))
    axes.plot(values[kept] * factor, levels[kept], drawstyle="steps-post", **_DOTS)


def _cdf(axes: Axes, delay: Delay, values: Floats, factor: float, style: Style) -> None:
    low, high = _window(values)
    x = np.linspace(0.0 if low < 0.3 * high else low - 0.05 * (high - low), high, 800)
    axes.plot(x * factor, delay.cdf(x), color=style.color, linestyle=style.dash, linewidth=1.3)


def _tail_of_sample(axes: Axes, values: Floats, factor: float) -> None:
    kept = _kept(len(values))[:-1]
    positive = kept[values[kept] > 0]
    axes.plot(values[positive] * factor, 1 - (positive + 1) / len(values), drawstyle="steps-post", **_DOTS)


def _survival(axes: Axes, delay: Delay, values: Floats, factor: float, style: Style) -> None:
    x = np.geomspace(*_tail_window(values), 800)
    axes.plot(x * factor, delay.survival(x), color=style.color, linestyle=style.dash, linewidth=1.3)


def _quantile_pairs(axes: Axes, delay: Delay, values: Floats, factor: float, style: Style) -> None:
    kept = _kept(len(values))
    fitted = delay.quantile((kept + 0.5) / len(values))
    axes.plot(fitted * factor, values[kept] * factor, ".", color=style.color, markersize=2.5)


def _kept(count: int) -> Any:
    """Which of so many ordered values are drawn: all at both ends, evenly spread ones between."""
    if count <= POINTS:
        return np.arange(count)
    ends = POINTS // 8
    middle = np.linspace(ends, count - ends - 1, POINTS - 2 * ends).astype(np.int64)
    return np.unique(np.concatenate([np.arange(ends), middle, np.arange(count - ends, count)]))


def _label_densities(axes: Axes, unit: str, values: Floats, factor: float) -> None:
    low, high = _window(values)
    axes.set_ylabel(f"density [1/{unit}]")
    x_axis(axes, "delay", unit, logarithmic=False)
    axes.set_xlim(_left(low, high) * factor, high * factor)
    axes.set_ylim(bottom=0)


def _label_cdfs(axes: Axes, unit: str, values: Floats, factor: float) -> None:
    low, high = _window(values)
    axes.set_ylabel("share of delays up to x")
    x_axis(axes, "delay", unit, logarithmic=False)
    axes.set_xlim(_left(low, high) * factor, high * factor)
    axes.set_ylim(0, 1.02)


def _label_tails(axes: Axes, unit: str, values: Floats, factor: float) -> None:
    axes.set_ylim(0.5 / len(values), 1.3)  # first: where nothing is above 0 a logarithmic axis has no limits of its own
    axes.set_yscale("log")
    axes.set_ylabel("share of delays above x")
    low, high = _tail_window(values)
    axes.set_xlim(low * factor, high * factor)  # before the axis chooses its labels
    x_axis(axes, "delay", unit, logarithmic=True)
    axes.set_xlim(low * factor, high * factor)


def _tail_window(values: Floats) -> tuple[float, float]:
    """What the survival is drawn over: from the shortest per cent to beyond the longest."""
    high = 3 * float(values[-1]) or 1.0
    return 0.7 * max(float(np.quantile(values, 0.01)), 1e-6 * high), high


def _left(low: float, high: float) -> float:
    """Where an axis begins: at 0 unless that would waste most of it."""
    return 0.0 if low < 0.3 * high else low


__all__: Sequence[str] = ["fits", "law"]
