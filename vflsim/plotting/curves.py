"""Curves over a metric's evaluations: means over seeds with 95 % bands."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vflsim.books import BYTES as SENT
from vflsim.errors import ResultsError
from vflsim.intervals import band, step_values
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.selection import Place, Window
from vflsim.plotting.style import (
    Numbers,
    Picture,
    beside,
    failures,
    frame,
    headline,
    legend,
    metric_label,
    picture,
    remark,
    spread_widely,
    stacked,
    x_axis,
)
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.doubts import distinct, plateau_of
from vflsim.results.tables.sections import answer_means, answer_metric, answered
from vflsim.timing.floats import Floats
from vflsim.vocabulary import quantities
from vflsim.vocabulary.metrics import facts_of
from vflsim.vocabulary.quantities import Dimension
from vflsim.world.run_tables import ENERGY, EPSILON

BANDED = 3
"""Least number of seeds for a band (with two, the t factor is 12.7: single lines show more)."""


POINTS = 4000
"""Most points of a curve."""


_ALL = Window()


Runs = dict[int, tuple[Floats, Floats]]
"""(x, metric), each (evaluations,), of a protocol's runs, by seed."""


@dataclass(frozen=True)
class Horizontal:
    """The x axis: a column of the metrics, its label, its unit and the dimension of its ends."""

    column: str
    label: str
    unit: str
    dimension: Dimension


TIME = Horizontal("time_s", "virtual time", "s", quantities.TIME)


ROUNDS = Horizontal("round", "server steps", "", quantities.PURE)


BYTES = Horizontal("bytes", "bytes sent by all parties", "B", quantities.SIZE)


JOULES = Horizontal(ENERGY, "energy of all parties", "J", quantities.ENERGY)


SPENT = Horizontal(EPSILON, "ε spent", "", quantities.PURE)


def metric_against_time(results: Results, metric: str | None = None, start: Place = None, end: Place = None) -> Picture:
    """Plot a metric (default: the main one) against virtual time, from ``start`` to ``end`` (seconds, or with a unit).

    A protocol whose runs end before ``start`` is left out.
    ``numbers``: ``means`` (protocol, time_s, mean; with three seeds or more also low and high) up to the first end of a
    run, ``seeds`` (protocol, seed, time_s and the metric) for all evaluations, and ``references`` (protocol, mean),
    the plateaus of references, which are horizontal lines.
    """
    return _curves(results, TIME, metric, Window.of(start, end, TIME.dimension))


def metric_against_rounds(
    results: Results, metric: str | None = None, start: Place = None, end: Place = None
) -> Picture:
    """Plot a metric (default: the main one) against server steps. ``numbers`` as against time, with ``round``."""
    return _curves(results, ROUNDS, metric, Window.of(start, end, ROUNDS.dimension))


def metric_against_bytes(
    results: Results, metric: str | None = None, start: Place = None, end: Place = None
) -> Picture:
    """Plot a metric (default: the main one) against the bytes sent by all parties, in all directions.

    ``numbers`` as against time, with ``bytes``.
    """
    return _curves(results, BYTES, metric, Window.of(start, end, BYTES.dimension))


def metric_against_energy(
    results: Results, metric: str | None = None, start: Place = None, end: Place = None
) -> Picture:
    """Plot a metric (default: the main one) against the energy of all parties, where one says what it draws.

    ``numbers`` as against time, with ``energy_j``.
    """
    return _curves(results, JOULES, metric, Window.of(start, end, JOULES.dimension))


def metric_against_epsilon(
    results: Results, metric: str | None = None, start: Place = None, end: Place = None
) -> Picture:
    """Plot a metric (default: the main one) against the ε spent, of protocols with a mechanism.

    Where several evaluations have the same ε, the curve has the last of them. ``numbers`` as against time, with
    ``epsilon``.
    """
    return _curves(results, SPENT, metric, Window.of(start, end, SPENT.dimension))


def _curves(results: Results, horizontal: Horizontal, metric: str | None, window: Window) -> Picture:
    metric = metric or results.main_metric
    if metric not in results.evaluated:
        raise ResultsError(f"{metric!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    curves = {name: runs for name in results.protocols if (runs := runs_of(results, name, horizontal.column, metric))}
    if not curves:
        of = {SPENT: " of a protocol with a mechanism", JOULES: " in which a party says what it draws (`power`)"}
        what = f"no finished run{of.get(horizontal, '')}"
        raise NotRecordedError(what, str(results.folder))
    costs = horizontal in (TIME, BYTES, JOULES)
    curves, levels = without_references(results, curves, metric) if costs else (curves, {})
    ends = {name: [x[-1] for x, _ in runs.values()] for name, runs in curves.items()}
    if horizontal is TIME and not any(max(each) > 0 for each in ends.values()):
        raise NotRecordedError("no virtual time passed in these runs", str(results.folder))
    if not (shown := [name for name, each in ends.items() if max(each) >= window.start]):
        raise NotRecordedError(
            f"every run ends before {window.start:g} {horizontal.unit}".rstrip(), str(results.folder)
        )
    styles = protocol_styles(results)
    logarithmic = spread_widely(min(max(ends[name]), window.end) for name in shown)
    facts = facts_of(metric, results.own_metrics)
    numbers = numbers_of(curves, horizontal.column, metric, levels, facts.span)
    with picture(5.6, 3.6, numbers) as figure:
        axes = figure.add_subplot()
        means = numbers["means"]
        handles = [
            curve(axes, means[means["protocol"] == name], curves[name], styles[name], logarithmic, window)
            for name in shown
        ]
        x_axis(axes, horizontal.label, horizontal.unit, logarithmic=logarithmic)
        window.show(axes)
        axes.set_ylabel(metric_label(metric, facts.unit))
        handles += [reference(axes, level, styles[name]) for name, level in levels.items()]
        targets = [target.value for target in results.targets if target.metric == metric]
        _targets(axes, targets)
        drawn = [y[window.inside(x)] for name in shown for x, y in curves[name].values()]
        limits(axes, np.concatenate([targets, [*levels.values()], *drawn]))
        headline(axes, results.name)
        remark(axes, shown_of(len(curves[name]) for name in shown) + failures(results))
        # A protocol that sends nothing has no place on an axis of bytes; the legend lists it all the same.
        none = horizontal is BYTES
        names = [name if max(ends[name]) > 0 or not none else f"{name} (none)" for name in shown]
        legend(figure, handles, names + [f"{name} (reference)" for name in levels])
    return figure


def without_references(
    results: Results, curves: Mapping[str, Runs], metric: str
) -> tuple[dict[str, Runs], dict[str, float]]:
    """Split off the references, such as training with all features in one place: the mean plateau of each.

    Their time and bytes are not those of a distributed system, so the figure shows them as levels. Without another
    protocol they remain curves.
    """
    names = {run.protocol for run in results.runs if run.info.reference and run.protocol in curves}
    if len(names) == len(curves):
        return dict(curves), {}
    frames = {name: results.metrics[results.metrics["protocol"] == name] for name in curves if name in names}
    levels = {
        name: float(np.mean([plateau_of(distinct(frame[frame["seed"] == seed]), metric) for seed in curves[name]]))
        for name, frame in frames.items()
    }
    return {name: runs for name, runs in curves.items() if name not in levels}, levels


def reference(axes: Axes, level: float, style: Style) -> Artist:
    """Draw the level of a reference across the axes."""
    return axes.axhline(level, color=style.color, linestyle=(0, (6, 2)), linewidth=1.3, zorder=1.5)


def shown_of(seeds: Iterable[int]) -> str:
    """Describe curves with these numbers of seeds, for a figure's remark."""
    numbers = [*seeds]
    if max(numbers) == 1:
        return "one seed"
    return f"mean and {'95 % band over' if min(numbers) >= BANDED else 'single'} seeds; markers: where runs end"


def runs_of(results: Results, protocol: str, column: str, metric: str) -> Runs:
    """Return (x, metric) of a protocol's finished runs by seed, evaluated rows only."""
    failed = {run.seed for run in results.failed if run.protocol == protocol}
    frame = results.metrics[results.metrics["protocol"] == protocol]
    frame = frame.assign(bytes=frame[[*SENT]].sum(axis=1))
    if column not in frame:  # protocols without a mechanism have no ε
        return {}
    frame = frame[~frame["seed"].isin(failed) & frame[metric].notna() & frame[column].notna()]
    return {rows["seed"].iloc[0].item(): _columns(rows, column, metric) for _, rows in frame.groupby("seed", sort=True)}


def _columns(frame: pd.DataFrame, column: str, metric: str) -> tuple[Floats, Floats]:
    return frame[column].to_numpy(dtype=np.float64), frame[metric].to_numpy(dtype=np.float64)


def numbers_of(
    curves: Mapping[str, Runs], column: str, metric: str, levels: Mapping[str, float], ends: tuple[float, float]
) -> Numbers:
    """Compute the numbers of these curves: ``means`` over seeds with bands, single ``seeds``, and ``references``.

    ``ends`` are the metric's least and greatest value.
    """
    single = {name: stacked({seed: {column: x, metric: y} for seed, (x, y) in runs.items()}, "seed")
              for name, runs in curves.items()}  # fmt: skip
    means = {name: _means(list(runs.values()), column, ends) for name, runs in curves.items()}
    numbers = {"means": stacked(means), "seeds": stacked(single)}
    return numbers | ({"references": frame(("protocol", "mean"), list(levels.items()))} if levels else {})


def _means(runs: list[tuple[Floats, Floats]], column: str, ends: tuple[float, float]) -> dict[str, Floats]:
    """Average over seeds up to the first end of a run; add a band if there are enough seeds, where the metric can be.

    A run keeps its value between evaluations, so the mean is a step function on the union of the runs' steps.
    """
    common = min(x[-1] for x, _ in runs)
    grid = np.unique(np.concatenate([x[x <= common] for x, _ in runs]))
    mean, low, high = band(np.stack([step_values(x, y, grid) for x, y in runs]))
    if len(runs) < BANDED:
        low = high = np.full_like(mean, np.nan)
    least, greatest = ends
    return {column: grid, "mean": mean, "low": np.maximum(low, least), "high": np.minimum(high, greatest)}


def curve(
    axes: Axes, means: pd.DataFrame, runs: Runs, style: Style, logarithmic: bool, window: Window = _ALL
) -> Artist:
    """Draw mean and band up to the first end of a run, then a thin line for each longer run; mark every run's end.

    ``means`` has the columns protocol, x, mean, low and high; thousands of points are thinned.
    """
    grid, mean, low, high = (means[name].to_numpy(np.float64) for name in (means.columns[1], "mean", "low", "high"))
    common = min(x[-1] for x, _ in runs.values())
    shown = np.arange(len(grid))[window.inside(grid)]
    if len(shown) > POINTS:
        shown = shown[np.linspace(0, len(shown) - 1, POINTS).astype(int)]
    if logarithmic:
        shown = shown[grid[shown] > 0]
    look: dict[str, Any] = {"marker": style.marker, "markersize": 3.6, "markerfacecolor": style.fill}
    if len(shown):
        if len(runs) >= BANDED:
            faint: dict[str, Any] = {"color": style.color, "alpha": 0.18, "linewidth": 0}
            axes.fill_between(grid[shown], low[shown], high[shown], step="post", **faint)
        axes.step(grid[shown], mean[shown], where="post", color=style.color, linestyle=style.dash, linewidth=1.6)
    for x, y in runs.values():
        after = x > (common if len(runs) >= BANDED else -1.0)
        if after.any():
            x_tail, y_tail = x, y
            if not after.all():
                x_tail = np.concatenate([[common], x[after]])
                y_tail = np.concatenate([step_values(x, y, np.array([common])), y[after]])
            if logarithmic:
                x_tail, y_tail = x_tail[x_tail > 0], y_tail[x_tail > 0]
            axes.step(x_tail, y_tail, where="post", color=style.color, linewidth=0.7, alpha=0.5)
        axes.plot(x[-1:], y[-1:], **look, color=style.color, linestyle="none")
    return Line2D([], [], color=style.color, linestyle=style.dash, linewidth=1.6, **look)


def _targets(axes: Axes, values: list[float]) -> None:
    for value in values:
        axes.axhline(value, color="#888888", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        look: dict[str, Any] = {"va": "center", "color": "#666666", "annotation_clip": False}
        beside(axes, f"target {value:g}", (1, value), (3, 0), xycoords=axes.get_yaxis_transform(), **look)


def limits(axes: Axes, values: Floats) -> None:
    """Fit the y axis to single runs and targets; wide bands of few seeds may be cut off."""
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.05
    axes.set_ylim(low - margin, high + margin)


def answers_under_deadlines(
    results: Results, metric: str | None = None, start: Place = None, end: Place = None
) -> Picture:
    """Plot a test metric (default: the main one) of answers under deadlines against the mean time of an answer.

    A point for each deadline, joined by protocol; the last one, with the protocol's marker, waits for all that comes.
    With three seeds or more, a band is the 95 % interval of the mean over seeds. ``start`` and ``end`` limit the axis
    of times (seconds, or with a unit). ``numbers``: ``means`` (protocol, deadline_s, answer_s, complete, embeddings,
    mean, low, high, n) and ``seeds`` (protocol, seed, deadline_s, answer_s_mean and the metric). Raises
    NotRecordedError if no finished run answered, ResultsError for a metric that answers do not have.
    """
    window = Window.of(start, end, quantities.TIME)
    if not answered(results):
        results.runs[0].table("answers")  # raises the error with the remedy, unless this run failed
        raise NotRecordedError("no finished run answered under deadlines", str(results.folder))
    metric, means = answer_metric(results, metric), answer_means(results, metric)
    shown = [name for name in results.protocols if (means["protocol"] == name).any()]
    styles, facts = protocol_styles(results), facts_of(metric, results.own_metrics)
    seeds = results.answers[["protocol", "seed", "deadline_s", "answer_s_mean", metric]]
    curves = {name: means[means["protocol"] == name].drop(columns="protocol") for name in shown}
    numbers = {"means": stacked(curves), "seeds": seeds.astype({"protocol": str})}
    with picture(5.6, 3.6, numbers) as figure:
        axes = figure.add_subplot()
        handles = [_curve(axes, curves[name], styles[name]) for name in shown]
        x_axis(axes, "mean time of an answer", "s", logarithmic=spread_widely(means["answer_s"]))
        window.show(axes)
        axes.set_ylabel(metric_label(metric, facts.unit))
        headline(axes, f"{results.name}: answers under deadlines")
        most = means["n"].max()
        over = "one seed" if most == 1 else f"mean {'and 95 % band ' if most >= BANDED else ''}over seeds"
        remark(axes, f"{over}; dots: deadlines; markers: no deadline{failures(results)}")
        legend(figure, handles, shown)
    return figure


def _curve(axes: Axes, means: pd.DataFrame, style: Style) -> Artist:
    """Draw the points of a protocol by ascending deadline, and its marker where it waits for all."""
    times, mean, low, high = (means[name].to_numpy(np.float64) for name in ("answer_s", "mean", "low", "high"))
    if means["n"].min() >= BANDED:
        axes.fill_between(times, low, high, color=style.color, alpha=0.18, linewidth=0)
    axes.plot(times, mean, color=style.color, linestyle=style.dash, linewidth=1.6, marker=".", markersize=5)
    look: dict[str, Any] = {"marker": style.marker, "markersize": 5.5, "markerfacecolor": style.fill}
    axes.plot(times[-1:], mean[-1:], **look, color=style.color, linestyle="none")
    return Line2D([], [], color=style.color, linestyle=style.dash, linewidth=1.6, **look)
