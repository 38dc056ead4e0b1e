"""Cost to the target: time, rounds, bytes and energy, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from vflsim.plotting.numbers import frame
from vflsim.plotting.protocol_style import Style, protocol_styles
from vflsim.plotting.style import Picture, failures, headline, legend, picture, spread_widely, x_axis
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.estimates import GEOMETRIC, SeedSample, estimate
from vflsim.results.statistics.summary import outcomes, statistic_of

PANELS = (("time_to_target", "time", "s"), ("rounds_to_target", "server steps", ""), ("bytes_to_target", "bytes", "B"))
ENERGY_PANEL = ("energy_to_target", "energy", "J")
"""The panel more where a party says what it draws."""


_WIDE_BARS = 50.0
"""Ratio above which bars get a logarithmic axis. Their lengths are then not comparable, so it is high."""


def costs_to_target(results: Results, target: Mapping[str, Any] | None = None) -> Picture:
    """Plot bars of time, rounds, bytes and energy until the target (default: the first), one row per protocol.

    A bar ends at the geometric mean over seeds (the arithmetic, if a cost is 0), with its 95 % interval; dots are
    single seeds. If some seed (a diverged one, for example) never reached the target, the bar is hatched, ends at a
    one-sided 95 % limit of the mean, and has a label with the number of seeds that reached it. ``numbers``: ``costs``
    (measure, protocol, unit, shown: the bar's end, low, high, n, reached, statistic), ``seeds`` (measure, protocol,
    seed, value, lower, censored). Raises NotRecordedError without a target.
    """
    measured = outcomes(results, target)
    measured = measured[measured["target"].notna()]
    if measured.empty:
        raise NotRecordedError(
            "no target, or its metric was not evaluated",
            str(results.folder),
            remedy="name one: target: {test_accuracy: 0.9}",
        )
    measured = measured[measured["target"] == measured["target"].iloc[0]]
    protocols = [name for name in results.protocols if (measured["protocol"] == name).any()]
    styles = protocol_styles(results)
    shown = (*PANELS, ENERGY_PANEL) if (measured["measure"] == ENERGY_PANEL[0]).any() else PANELS
    measured = measured[measured["measure"].isin([measure for measure, _, _ in shown])]
    costs = _costs(measured, protocols, shown)
    seeds = measured[["measure", "protocol", "seed", "value", "lower", "censored"]].reset_index(drop=True)
    width = 8.4 + 2.8 * (len(shown) - len(PANELS))
    with picture(width, 1.5 + 0.42 * len(protocols), {"costs": costs, "seeds": seeds}) as figure:
        panels = figure.subplots(1, len(shown), sharey=True, gridspec_kw={"wspace": 0.08})
        for axes, (measure, label, unit) in zip(panels, shown, strict=True):
            own, bars = (each[each["measure"] == measure] for each in (measured, costs))
            _panel(axes, own, bars, protocols, styles, label, unit)
        panels[0].set_yticks(range(len(protocols)), protocols)
        panels[0].invert_yaxis()
        goal = measured["target"].iloc[0].replace("_", " ")
        headline(figure, f"{results.name}: cost to {goal}{failures(results, costs=True)}")
        mean = "geometric mean" if (costs["statistic"] == GEOMETRIC).all() else "mean"
        legend(figure, *_key(bool(measured["censored"].any()), measured["seed"].nunique() > 1, mean))
    return figure


def _costs(measured: pd.DataFrame, protocols: list[str], panels: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    """Compute the end and the interval of every bar."""
    rows = []
    for measure, _, unit in panels:
        own = measured[measured["measure"] == measure]
        values = [own.loc[own["protocol"] == name, "value"].to_numpy(dtype=np.float64) for name in protocols]
        statistic = statistic_of(measure, values)
        for name in protocols:
            own = measured[(measured["measure"] == measure) & (measured["protocol"] == name)]
            reached, before = (own[end].to_numpy(dtype=np.float64) for end in ("value", "lower"))
            found = estimate(
                SeedSample((*own["seed"],), reached, own["censored"].to_numpy(dtype=bool), before), statistic
            )
            shown = found.at_least if found.censored else found.mean
            low, high = found.bounds if found.wide and not found.censored else (found.low, found.high)
            low = float(np.maximum(low, 0.0))  # no cost is below 0
            rows.append((measure, name, unit, shown, low, high, found.n, found.reached, statistic))
    return frame(("measure", "protocol", "unit", "shown", "low", "high", "n", "reached", "statistic"), rows)


def _panel(
    axes: Axes,
    measured: pd.DataFrame,
    costs: pd.DataFrame,
    protocols: list[str],
    styles: dict[str, Style],
    label: str,
    unit: str,
) -> None:
    logarithmic = spread_widely(measured["value"], _WIDE_BARS)
    left = 0.5 * measured["value"][measured["value"] > 0].min() if logarithmic else 0.0
    largest = float(measured["value"].max())
    for row, name in enumerate(protocols):
        own = measured[measured["protocol"] == name]
        values = own["value"].to_numpy(dtype=np.float64)
        bar = costs[costs["protocol"] == name].to_dict("records")[0]
        end, low, high = (float(bar[column]) for column in ("shown", "low", "high"))
        several, got = int(bar["n"]), int(bar["reached"])
        censored = got < several
        look: dict[str, Any] = {"color": styles[name].color, "alpha": 0.85}
        if censored:
            look = {"facecolor": "none", "edgecolor": styles[name].color, "hatch": "////", "linewidth": 0.9}
        axes.barh(row, max(end - left, 0.0), height=0.6, left=left, **look)
        if not math.isnan(low):
            largest = max(largest, high)
            axes.errorbar(
                end,
                row,
                xerr=[[end - min(max(low, left), end)], [high - end]],
                color="black",
                linewidth=1.2,
                capsize=2.5,
                capthick=1.2,
            )
        if end == 0:
            axes.annotate("0", (left, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small")
        if len(values) > 1:
            dots: dict[str, Any] = {
                "markersize": 2.8,
                "color": "white",
                "markeredgecolor": "black",
                "markeredgewidth": 0.6,
            }
            axes.plot(values, np.full(len(values), row + 0.2), "o", **dots, zorder=4)
        if censored:
            axes.annotate(
                f"→ {got} of {several}",
                (max(end, values.max()), row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
                color="#333333",
            )
    room = 0.3 if measured["censored"].any() else 0.1
    right = largest * ((largest / left) ** room if logarithmic else 1 + room)
    axes.set_xlim(left, right if right > left else left + 1)  # all costs may be 0
    x_axis(axes, f"{label} to target", unit, logarithmic=logarithmic)
    if isinstance(ticks := axes.xaxis.get_major_locator(), LogLocator):
        ticks.set_params(numticks=5)  # a panel is a third of the figure
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _key(censored: bool, several: bool, mean: str) -> tuple[list[object], list[str]]:
    handles: list[object] = [Patch(facecolor="#888888", alpha=0.85)]
    labels = [f"{mean} over seeds" if several else "one seed"]
    if several:
        handles += [
            Line2D([], [], color="black", linewidth=1.3),
            Line2D([], [], linestyle="none", marker="o", markersize=3, color="white", markeredgecolor="black"),
        ]
        labels += ["95 % interval", "single seed"]
    if censored:
        handles.append(Patch(facecolor="none", edgecolor="#666666", hatch="////"))
        labels.append("more than this (95 % limit): only k of n seeds reached it")
    return handles, labels
