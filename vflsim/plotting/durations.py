"""Distribution of round durations, its tail, and their closed forms."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vflsim.plotting import closed_forms as closed
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.selection import Place, Window, finished
from vflsim.plotting.style import (
    Numbers,
    Picture,
    failures,
    frame,
    headline,
    legend,
    picture,
    remark,
    spread_widely,
    stacked,
    x_axis,
)
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.rounds import Rounds, ages_of, outlasting, pooled_mean
from vflsim.timing.floats import Floats

POINTS = 4000
"""Approximate number of points of a distribution's line; its tails keep all points."""
_LOWEST = 0.6
"""Lower end of the survival axis, relative to the share of a single round."""


def round_durations(results: Results, histogram: bool = False, start: Place = None, end: Place = None) -> Picture:
    """Plot the empirical distribution of round durations per protocol, seeds pooled; the dot is the mean.

    Rounds in progress when a run stopped by time are censored (Kaplan and Meier), and count for the mean. A dashed line
    shows the closed form, if there is one, and an area the bounds of one. ``histogram`` adds a panel with
    histograms. ``start`` and ``end`` limit the axis of durations (seconds, or with a unit); means and shares are of all
    rounds. ``numbers``: ``durations`` (protocol, seconds, share of rounds up to that), ``means`` (protocol, rounds,
    mean_s), ``closed_form`` (protocol, seconds, lower, upper), ``histogram`` (protocol, start_s, end_s, share). Raises
    NotRecordedError if rounds were not kept.
    """
    window, seconds = Window.of(start, end), durations(results)
    logarithmic, drawn = _spread(seconds, window), _Durations(results, seconds)
    shares = {name: _up_to(values, drawn.ages[name]) for name, values in seconds.items()}
    bins = _histograms(seconds, logarithmic) if histogram else {}
    numbers = drawn.numbers(shares) | {"histogram": stacked(bins)}
    with picture(5.6, 5.2 if histogram else 3.6, numbers) as figure:
        *above, axes = figure.subplots(2 if histogram else 1, 1, sharex=True, squeeze=False)[:, 0]
        for upper in above:
            _densities(upper, bins, drawn.styles)
        for name, values in seconds.items():
            _distribution(axes, values, shares[name], drawn.means[name], drawn.styles[name])
        x_axis(axes, "round duration", "s", logarithmic=logarithmic)
        known = drawn.closed_forms(axes, survival=False)
        window.show(axes)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("cumulative share of rounds")
        drawn.explain(figure, (above or [axes])[0], known, markers=True)
    return figure


def survival(results: Results, start: Place = None, end: Place = None) -> Picture:
    """Plot the share of rounds that last longer than x on logarithmic axes: the tail of round durations.

    Seeds are pooled; rounds in progress when a run stopped by time are censored. A dashed line shows the closed form,
    if there is one (an area its bounds). ``start`` and ``end`` limit the axis of durations. ``numbers``: ``durations``
    (protocol, seconds, share of rounds that last at least so long), ``means`` and ``closed_form`` as in
    :func:`round_durations`. Raises NotRecordedError if rounds were not kept, or none took any time.
    """
    window = Window.of(start, end)
    seconds = {name: values for name, values in durations(results).items() if values[-1] > 0}
    if not seconds:
        raise NotRecordedError("no round of these runs took any time", str(results.folder))
    drawn = _Durations(results, seconds)
    shares = {name: outlasting(values, drawn.ages[name])[:-1] for name, values in seconds.items()}
    with picture(5.6, 3.6, drawn.numbers(shares)) as figure:
        axes = figure.add_subplot()
        axes.set_yscale("log")
        for name, values in seconds.items():
            _tail(axes, values, shares[name], drawn.styles[name])
        x_axis(axes, "round duration", "s", logarithmic=True)
        axes.set_xlim(left=0.5 * min(float(np.quantile(values[values > 0], 0.01)) for values in seconds.values()))
        known = drawn.closed_forms(axes, survival=True)
        window.show(axes)
        axes.set_ylim(_LOWEST / max(map(len, seconds.values())), 1.3)
        axes.set_ylabel("share of rounds that last longer")
        drawn.explain(figure, axes, known, markers=False)
    return figure


def durations(results: Results) -> dict[str, Floats]:
    """Return the ascending durations of all completed rounds in seconds, seeds pooled, by protocol.

    Raises NotRecordedError if rounds were not kept, or none was completed.
    """
    kept = finished(results, "rounds")
    pooled = {name: np.sort(np.concatenate([run.round_durations() for run in runs])) for name, runs in kept.items()}
    pooled = {name: values for name, values in pooled.items() if len(values)}
    if not pooled:
        raise NotRecordedError("no round was completed in these runs", str(results.folder))
    return pooled


class _Durations:
    """The ``seconds`` of rounds by protocol, with how long rounds had been in progress when runs stopped by time."""

    def __init__(self, results: Results, seconds: dict[str, Floats]) -> None:
        kept = finished(results, "rounds")
        self.ages = {name: ages_of([Rounds.of(run) for run in runs]) for name, runs in kept.items()}
        self.means = {name: pooled_mean(values, self.ages[name]) for name, values in seconds.items()}
        self.styles, self._results, self._seconds = protocol_styles(results), results, seconds
        forms = {name: closed.round_duration(results, name) for name in seconds}
        self._curves = {name: curve for name, curve in forms.items() if curve is not None}

    def numbers(self, shares: dict[str, Floats]) -> Numbers:
        """Return the numbers that both figures draw."""
        seconds = self._seconds
        rows = [(name, len(values), self.means[name]) for name, values in seconds.items()]
        return {
            "durations": stacked({name: {"seconds": seconds[name], "share": shares[name]} for name in seconds}),
            "means": frame(("protocol", "rounds", "mean_s"), rows),
            "closed_form": stacked({name: curve.columns() for name, curve in self._curves.items()}),
        }

    def closed_forms(self, axes: Axes, *, survival: bool) -> dict[str, Artist]:
        """Draw closed forms within the limits of the simulated rounds; return their legend handles by label."""
        limits = axes.get_xlim()
        for name, curve in self._curves.items():
            closed.draw(axes, curve, self.styles[name], survival=survival)
        axes.set_xlim(limits)
        return closed.handles(curve.exact for curve in self._curves.values())

    def explain(self, figure: Picture, axes: Axes, known: dict[str, Artist], *, markers: bool) -> None:
        """Write title, remark and legend."""
        headline(axes, self._results.name)
        note = "; rounds in progress at the end are censored" if any(map(len, self.ages.values())) else ""
        remark(axes, f"all seeds together{'; markers: means' * markers}{note}{failures(self._results)}")
        looks = {name: self.styles[name] for name in self._seconds}
        handles: list[Artist] = [
            Line2D([], [], **_line(look), marker=look.marker if markers else None, markersize=4)
            for look in looks.values()
        ]
        counts = self._seconds.items()
        labels = [f"{name} (mean {self.means[name]:.3g} s, n = {len(values)})" for name, values in counts]
        legend(figure, [*handles, *known.values()], [*labels, *known], columns=2)


def _up_to(values: Floats, ages: Floats) -> Floats:
    """Return the share of rounds up to each of the ascending values."""
    return 1 - outlasting(values, ages)[1:] if len(ages) else np.arange(1, len(values) + 1) / len(values)


def _spread(seconds: dict[str, Floats], window: Window) -> bool:
    ends = [np.quantile(values, [0.02, 0.98]) for values in seconds.values()]
    return spread_widely(np.clip(np.concatenate(ends), window.start, window.end))


def _ranks(n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Select which of n sorted values to draw: all, or evenly spaced ones that get denser towards both ends."""
    if n <= POINTS:
        return np.arange(n)
    even, outwards = np.linspace(0, n - 1, POINTS // 2), np.geomspace(1, n, POINTS // 4) - 1
    return np.unique(np.concatenate([even, outwards, n - 1 - outwards]).astype(np.int64))


def _distribution(axes: Axes, values: Floats, shares: Floats, mean: float, style: Style) -> None:
    ranks = _ranks(len(values))
    x, y = np.concatenate([values[:1], values[ranks]]), np.concatenate([[0.0], shares[ranks]])
    axes.step(x, y, where="post", **_line(style))
    # The mean of equal numbers may differ from them in the last bit.
    below = int(np.searchsorted(values, mean * (1 + 1e-9), side="right"))
    at = shares[below - 1] if below else 0.0
    axes.plot([mean], [at], marker=style.marker, color=style.color, markersize=5, markeredgecolor="white", zorder=4)


def _tail(axes: Axes, values: Floats, shares: Floats, style: Style) -> None:
    """Share of rounds that last longer than x: 1 before the shortest, 0 (not on the axis) from the longest on."""
    ranks = _ranks(len(values))
    ranks = ranks[values[ranks] > 0]
    axes.step(values[ranks], shares[ranks], where="pre", **_line(style))


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.color, "linestyle": style.dash, "linewidth": 1.8}


def _histograms(seconds: dict[str, Floats], logarithmic: bool) -> dict[str, dict[str, Any]]:
    positive = np.concatenate([values[values > 0] for values in seconds.values()])
    space = np.geomspace if logarithmic else np.linspace
    edges = space(positive.min(), positive.max() * (1 + 1e-9), 41)
    return {
        name: {"start_s": edges[:-1], "end_s": edges[1:], "share": np.histogram(values, edges)[0] / len(values)}
        for name, values in seconds.items()
    }


def _densities(axes: Axes, bins: dict[str, dict[str, Any]], styles: dict[str, Style]) -> None:
    for name, columns in bins.items():
        edges = np.append(columns["start_s"], columns["end_s"][-1])
        axes.stairs(columns["share"], edges, color=styles[name].color, fill=True, alpha=0.2)
        axes.stairs(columns["share"], edges, color=styles[name].color, linewidth=1.2)
    axes.set_ylabel("share of rounds per bin")
    axes.set_ylim(bottom=0)
