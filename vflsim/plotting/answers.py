"""Answers under deadlines: what trained models' servers predict from the embeddings that have come by then."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vflsim.plotting.curves import BANDED
from vflsim.plotting.selection import Place, Window
from vflsim.plotting.style import (
    Picture,
    failures,
    headline,
    legend,
    metric_label,
    picture,
    remark,
    spread_widely,
    stacked,
    x_axis,
)
from vflsim.plotting.theme import Style, protocol_styles
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.answers import answer_means, answer_metric, answered
from vflsim.vocabulary.metrics import facts_of
from vflsim.vocabulary.quantities import TIME


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
    window = Window.of(start, end, TIME)
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
