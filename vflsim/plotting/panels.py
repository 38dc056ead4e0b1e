"""A metric against virtual time, a panel for each of several results, all protocols in one legend."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from vflsim.errors import ResultsError
from vflsim.plotting.curves import TIME, curve, limits, runs_of, shown_of
from vflsim.plotting.style import (
    Picture,
    failures,
    legend,
    metric_label,
    picture,
    protocol_styles,
    remark,
    sides,
    x_axis,
)
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.sweep import Sweep

PANEL = (3.0, 2.6)
"""Inches of one panel."""


def metric_panels(
    shown: Sequence[Results | Sweep], columns: int = 3, metric: str | None = None, titles: Sequence[str] = ()
) -> Picture:
    """A metric (default: each one's main one) against virtual time, in rows of ``columns`` panels.

    A sweep has a panel for each of its values. ``titles`` take the place of the scenarios' names, in order. A protocol
    looks the same in all panels. Raises ResultsError where the metric was not evaluated, NotRecordedError where no run
    has finished.
    """
    panels = [panel for each in shown for panel in _panels(each)]
    panels = [(title, panel) for title, (_, panel) in zip(titles, panels, strict=False)] + panels[len(titles) :]
    names = list(dict.fromkeys(name for _, results in panels for name in results.protocols))
    styles, handles = protocol_styles(names), {}
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    with picture(PANEL[0] * columns, PANEL[1] * rows + 0.3) as figure:
        places = figure.subplots(rows, columns, squeeze=False)
        for axes, (title, results) in zip(places.flat, panels, strict=False):
            column = metric or results.main_metric
            if column not in results.evaluated:
                raise ResultsError(f"{column!r} was not evaluated", str(results.folder), ", ".join(results.evaluated))
            curves = {name: found for name in names if (found := runs_of(results, name, TIME.column, column))}
            if not curves:
                raise NotRecordedError("no finished run", str(results.folder))
            for name, runs in curves.items():
                handles[name] = curve(axes, runs, styles[name], logarithmic=False)
            limits(axes, np.concatenate([y for runs in curves.values() for _, y in runs]))
            x_axis(axes, TIME.label, TIME.unit, logarithmic=False)
            axes.set_title(title, loc="left")
            remark(axes, shown_of(map(len, curves.values())).partition(";")[0] + failures(results))
        for axes in places.flat[len(panels) :]:
            axes.set_visible(False)
        sides(figure, metric_label(column))
        legend(figure, list(handles.values()), list(handles))
    return figure


def _panels(shown: Results | Sweep) -> list[tuple[str, Results]]:
    """(title, results) of every panel that these results have."""
    if isinstance(shown, Results):
        return [(shown.name, shown)]
    return [(f"{shown.scenario}: {value}", each) for value, each in zip(shown.values, shown.results, strict=True)]
