"""A metric of several results or sweeps: a panel for each, which look alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from vflsim.errors import ResultsError
from vflsim.plotting.curves import (
    TIME,
    Runs,
    curve,
    limits,
    numbers_of,
    reference,
    runs_of,
    shown_of,
    without_references,
)
from vflsim.plotting.numbers import Numbers, stacked
from vflsim.plotting.protocol_style import kinds_of, protocol_styles
from vflsim.plotting.style import Picture, failures, legend, metric_label, picture, remark, sides, x_axis
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.vocabulary.metrics import facts_of, range_of

PANEL = (3.0, 2.6)
"""Inches of one panel."""


def metric_panels(
    shown: Sequence[Results | Sweep], columns: int = 3, metric: str | None = None, titles: Sequence[str] = ()
) -> Picture:
    """Plot a metric (default: each one's main one) against virtual time, in rows of ``columns`` panels.

    A sweep has a panel per value. ``titles`` replace the scenarios' names, in order. A protocol looks the same in all
    panels. ``numbers`` as for a metric against time, with the ``panel`` (0, 1, …) in front. Raises ResultsError if the
    metric was not evaluated, NotRecordedError if no run has finished.
    """
    panels = [panel for each in shown for panel in _panels(each)]
    panels = [(title, panel) for title, (_, panel) in zip(titles, panels, strict=False)] + panels[len(titles) :]
    names = list(dict.fromkeys(name for _, results in panels for name in results.protocols))
    styles, handles = protocol_styles(kinds_of(*shown)), {}
    curves = [_panel_curves(results, names, metric) for _, results in panels]
    numbers = [
        numbers_of(found, TIME.column, column, levels, range_of(column, results.own_metrics))
        for (column, found, levels), (_, results) in zip(curves, panels, strict=True)
    ]
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    with picture(PANEL[0] * columns, PANEL[1] * rows + 0.3, _joined(numbers)) as figure:
        places = figure.subplots(rows, columns, squeeze=False)
        for axes, (title, results), (_, found, levels), own in zip(places.flat, panels, curves, numbers, strict=False):
            means = own["means"]
            for name, runs in found.items():
                handles[name] = curve(axes, means[means["protocol"] == name], runs, styles[name], logarithmic=False)
            for name, level in levels.items():
                handles[f"{name} (reference)"] = reference(axes, level, styles[name])
            limits(
                axes, np.concatenate([[*levels.values()], *(y for runs in found.values() for _, y in runs.values())])
            )
            x_axis(axes, TIME.label, TIME.unit, logarithmic=False)
            axes.set_title(title, loc="left")
            remark(axes, shown_of(map(len, found.values())).partition(";")[0] + failures(results))
        for axes in places.flat[len(panels) :]:
            axes.set_visible(False)
        sides(figure, metric_label(curves[-1][0], facts_of(curves[-1][0], panels[-1][1].own_metrics).unit))
        legend(figure, list(handles.values()), list(handles))
    return figure


def _panel_curves(
    results: Results, names: Sequence[str], metric: str | None
) -> tuple[str, dict[str, Runs], dict[str, float]]:
    """Return the metric of a panel, its runs by protocol, and the levels of references."""
    column = metric or results.main_metric
    if column not in results.evaluated:
        raise ResultsError(f"{column!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
    found = {name: runs for name in names if (runs := runs_of(results, name, TIME.column, column))}
    if not found:
        raise NotRecordedError("no finished run", str(results.folder))
    return column, *without_references(results, found, column)


def _joined(panels: Sequence[Numbers]) -> Numbers:
    """Stack the numbers of all panels, with their position (from 0) in front."""
    names = dict.fromkeys(name for own in panels for name in own)
    return {
        name: stacked({position: own[name] for position, own in enumerate(panels) if name in own}, "panel")
        for name in names
    }


def _panels(shown: Results | Sweep) -> list[tuple[str, Results]]:
    """Return (title, results) of every panel of these results."""
    if isinstance(shown, Results):
        return [(shown.name, shown)]
    one = len(shown.keys) == 1
    pairs = zip(shown.points, shown.results, strict=True)
    return [(f"{shown.scenario}: {point[0] if one else shown.setting(point)}", each) for point, each in pairs]
