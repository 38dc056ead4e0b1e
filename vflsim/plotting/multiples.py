"""Times against three or more keys of a sweep: lines against the first key, a panel per value of the others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.artist import Artist

from vflsim.plotting.protocol_style import protocol_styles
from vflsim.plotting.style import Picture, headline, legend, picture, sides
from vflsim.plotting.sweep_lines import (
    BOUND,
    axis_label,
    bound_handle,
    line,
    measure_axis,
    places,
    tick_labels,
    value_axis,
)
from vflsim.results.sweeps.sweep import Sweep

_PANEL = (2.3, 1.9)
"""Inches of one panel."""


def small_multiples(sweep: Sweep, found: pd.DataFrame, label: str, note: str) -> Picture:
    """Draw lines against the first key: a column of panels per value of the second, a row per value of the others.

    ``found`` has the means in ``shown``. All panels have the same axes. Hollow markers are lower bounds: not all seeds
    reached the target. ``numbers``: ``times`` (``found`` with a column for each key, and x: the value's place).
    """
    first, second, *others = (axis.distinct for axis in sweep.axes)
    x = np.asarray(places(first))
    at = np.array([[axis.distinct.place(value) for value in axis.values] for axis in sweep.axes])[:, found["position"]]
    keys = {axis.name: [axis.values[place] for place in found["position"]] for axis in sweep.axes}
    found = found.assign(x=x[at[0]], **keys)
    rows = list(product(*(range(len(axis.values)) for axis in others)))
    names = [name for name in sweep.protocols if (found["protocol"] == name).any()]
    styles = protocol_styles(sweep)
    handles: dict[str, Artist] = {}
    columns = len(second.values)
    with picture(_PANEL[0] * columns + 0.4, _PANEL[1] * len(rows) + 0.8, {"times": found}) as figure:
        panels = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
        for row, column in product(range(len(rows)), range(columns)):
            axes = panels[row, column]
            here = (at[1] == column) & np.equal(at[2:].T, rows[row]).all(axis=1)
            for name in names:
                handles[name] = line(axes, found[here & (found["protocol"] == name).to_numpy()], styles[name])
            words = [f"{second.name} = {tick_labels(second, units=True)[column]}"]
            words += [
                f"{axis.name} = {tick_labels(axis, units=True)[place]}"
                for axis, place in zip(others, rows[row], strict=True)
            ]
            axes.set_title("\n".join(words), loc="left", fontsize=8)
        value_axis(panels[0, 0], first, x, labels=False)
        measure_axis(panels[0, 0], found, "")
        for axes in panels[-1]:
            axes.set_xlabel(axis_label(first))
        sides(figure, label)
        headline(figure, sweep.scenario, note)
        if (found["reached"] < found["n"]).any():
            handles[BOUND] = bound_handle()
        legend(figure, list(handles.values()), list(handles))
    return figure
