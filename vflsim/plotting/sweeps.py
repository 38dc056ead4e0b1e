"""Times against the keys of a sweep: lines over one key, heat maps over two, small multiples over more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vflsim.errors import ResultsError
from vflsim.plotting import closed_forms as closed
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.style import Picture, frame, headline, legend, picture, remark, stacked, target_label
from vflsim.plotting.sweep_panels import (
    BOUND,
    bound_handle,
    heat_map,
    line,
    measure_axis,
    places,
    small_multiples,
    value_axis,
)
from vflsim.results.read import NotRecordedError
from vflsim.results.statistics import STEADY
from vflsim.results.statistics.estimates import GEOMETRIC, WIDE
from vflsim.results.sweeps import QUANTILE, Sweep, level_of, shown_measure
from vflsim.timing.floats import Floats

FORMS = ("lines", "map", "panels")
"""The forms of a sweep's figure: lines over one key, a heat map over two, panels of lines over two or more."""
At = Mapping[str, Any] | Sequence[str] | None
"""Values of keys, by name, or as texts: ``t=2``."""


def round_time_against(
    sweep: Sweep,
    metric: str | None = None,
    target: Mapping[str, Any] | None = None,
    at: At = None,
    form: str | None = None,
) -> Picture:
    """Plot the mean round duration, or what ``metric`` names, against the swept values.

    ``metric`` is a metric, a measure of the summary (a cost to the ``target``, too, which replaces the scenario's), or
    a percentile of the rounds such as ``p99``. ``at`` leaves the points with these values of keys, which are no longer
    swept: ``{"t": 2}``, or ``["t=2"]``. ``form`` is one of ``FORMS`` that suits the number of keys. One key: lines with
    95 % intervals over seeds (with one seed, batch means after the warm-up give that of the mean round), and dashed
    ones for the mean round of the closed form, if there is one, or areas for its bounds. The axis has a scale for
    numbers (logarithmic if they spread widely and unevenly); other values, and points of several keys that change
    together, stand side by side. Two keys: a :func:`~vflsim.plotting.sweep_panels.heat_map` per protocol. More keys:
    :func:`~vflsim.plotting.sweep_panels.small_multiples`. ``numbers``: ``times`` (the columns of ``Sweep.estimates``,
    x: the value's place, shown), ``closed_form`` (protocol, x, lower, upper). Raises NotRecordedError for what runs do
    not have.
    """
    sweep = _chosen(sweep, target, at)
    if metric is not None:
        known = shown_measure(metric, sweep.measures, "--metric")
        return _figure(sweep, known.measure, known.target, target_label(known.label), form)
    single = sweep.estimates("round_duration")["n"].max() <= 1  # then the interval comes from within the run
    return _figure(sweep, STEADY if single else "round_duration", None, "mean round duration", form)


def time_to_target_against(
    sweep: Sweep, target: Mapping[str, Any] | None = None, at: At = None, form: str | None = None
) -> Picture:
    """Plot the time to the ``target`` (default: the scenario's first) against the swept values.

    Options are those of :func:`round_time_against`. Hollow markers are lower bounds: some seed did not reach the
    target. ``numbers``: ``times`` as of :func:`round_time_against`. Raises NotRecordedError without a target.
    """
    sweep = _chosen(sweep, target, at)
    targets = [name for summary in sweep.summaries for name in summary["target"].dropna().unique()]
    if not targets:
        raise NotRecordedError("no target, or its metric was not evaluated", str(sweep.folder))
    return _figure(sweep, "time_to_target", targets[0], f"time to {target_label(targets[0])}", form)


def _chosen(sweep: Sweep, target: Mapping[str, Any] | None, at: At) -> Sweep:
    """Return the points of a sweep with these values of keys, and another target."""
    pairs = [*at.items()] if isinstance(at, Mapping) else [each.partition("=")[::2] for each in at or ()]
    sweep = sweep.at(dict(pairs))
    return sweep if target is None else replace(sweep, targets=target)


def _form(sweep: Sweep, wanted: str | None) -> str:
    """Return the form of a sweep's figure. Raises ResultsError for one that its number of keys does not allow."""
    keys = 1 if sweep.zipped else len(sweep.keys)
    allowed = {1: FORMS[:1], 2: FORMS[1:]}.get(keys, FORMS[2:])
    if wanted is not None and wanted not in allowed:
        what = f"no figure of {keys} key{'s' * (keys > 1)} has the form {wanted!r}"
        raise ResultsError(what, "plot: form", ", ".join(allowed), "leave keys out: --at KEY=VALUE" if keys > 1 else "")
    return wanted or allowed[0]


def _figure(sweep: Sweep, measure: str, target: str | None, label: str, wanted: str | None) -> Picture:
    form = _form(sweep, wanted)
    means = sweep.estimates(measure, target)
    known, wide = means["reached"] == means["n"], means["most"] - means["least"] > WIDE * means["mean"]
    ends = {low: means[low].mask(known & wide & means[low].isna(), means[least])
            for low, least in (("low", "least"), ("high", "most"))}  # fmt: skip
    means = means.assign(**ends, shown=means["mean"].fillna(means["at_least"]))
    if (means["shown"].dropna() >= 0).all():
        means = means.assign(low=means["low"].clip(lower=0))
    means = means[means["shown"].notna()]
    if means.empty:
        remedy = "make runs longer, or ask for a lower percentile" if level_of(measure) is not None else ""
        raise NotRecordedError(f"the {label} is not in these results", str(sweep.folder), remedy=remedy)
    means = means.reset_index(drop=True)
    unit = str(means["unit"].iloc[0])
    label = f"{label} [{unit}]" if unit not in ("", "rounds", "updates") else label
    if form == "map":
        return heat_map(sweep, means, label, _remark(sweep, means, target is not None, bars=False))
    note = _remark(sweep, means, target is not None)
    if form == "lines":
        return _lines(sweep, means, label, note, theory=measure in ("round_duration", STEADY))
    return small_multiples(sweep, means, label, note)


def _lines(sweep: Sweep, points: pd.DataFrame, label: str, note: str, theory: bool) -> Picture:
    """Draw a line per protocol over the values of one key, or over points whose keys change together."""
    styles, axis = protocol_styles(sweep), sweep.joint_axis
    x = np.asarray(places(axis))
    points = points.assign(x=x[points["position"]])
    known = {name: _closed_form(sweep, name, x) for name in sweep.protocols} if theory else {}
    means = stacked({name: curve for name, curve in known.items() if len(curve)})
    with picture(5.6, 3.6, {"times": points, "closed_form": means}) as figure:
        axes = figure.add_subplot()
        handles: list[Artist] = []
        for name in (names := [name for name in sweep.protocols if (points["protocol"] == name).any()]):
            handles.append(line(axes, points[points["protocol"] == name], styles[name]))
            _theory(axes, means[means["protocol"] == name], styles[name])
        measure_axis(axes, points, label)
        value_axis(axes, axis, x)
        headline(axes, sweep.scenario)
        remark(axes, note)
        exact = [bool((curve["lower"] == curve["upper"]).all()) for _, curve in means.groupby("protocol")]
        handles += closed.handles(exact).values()
        names += closed.handles(exact)
        if (points["reached"] < points["n"]).any():
            handles.append(bound_handle())
            names.append(BOUND)
        legend(figure, handles, names)
    return figure


def _remark(sweep: Sweep, means: pd.DataFrame, costs: bool, bars: bool = True) -> str:
    several, bars = means["n"].max() > 1, bars and bool(means["low"].notna().any())
    if (means["statistic"] == QUANTILE).all():
        note = f"over the rounds of all seeds{', with 95 % intervals' if bars else ''}"
    elif several:
        mean = "geometric mean" if (means["statistic"] == GEOMETRIC).all() else "mean"
        note = f"{mean}{' and 95 % interval' if bars else ''} over seeds"
    else:
        note = f"one seed{'; 95 % interval by batch means' if bars else ''}"
    note += "; bars cover the time between evaluations" if costs and (means["least"] < means["most"]).any() else ""
    for what in ("diverged", "failed"):
        lost = [name for name in sweep.protocols if means.loc[means["protocol"] == name, what].any()]
        left_out = " left out" if what == "failed" or not costs else ""
        note += f"; {what} runs{left_out}: {', '.join(lost)}" if lost else ""
    waiting = len(sweep.pending)
    return note + (f"; {waiting} value{'s have' if waiting > 1 else ' has'} not finished" if waiting else "")


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
