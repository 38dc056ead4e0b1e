"""Cost to the target, with intervals over seeds: time, rounds, bytes, energy, and the speed-up over a baseline."""

import math
from collections.abc import Mapping, Sequence
from math import ceil
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from vflsim.errors import ResultsError
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.style import (
    Picture,
    beside,
    columns_of,
    failures,
    frame,
    headline,
    legend,
    panels_of,
    picture,
    spread_widely,
    target_label,
    x_axis,
)
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics import outcomes, statistic_of
from vflsim.results.statistics.estimates import GEOMETRIC, SeedSample, estimate
from vflsim.results.statistics.pairs import Ratio, ratio
from vflsim.vocabulary.amounts import three_digits

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
    columns = columns_of(len(shown), width, protocols)
    height = 0.9 + (0.6 + 0.42 * len(protocols)) * ceil(len(shown) / columns)
    with picture(width, height, {"costs": costs, "seeds": seeds}) as figure:
        panels = panels_of(figure, len(shown), columns)
        for axes, (measure, label, unit) in zip(panels, shown, strict=True):
            runs, bars = (each[each["measure"] == measure] for each in (measured, costs))
            _panel(axes, runs, bars, protocols, styles, label, unit)
        panels[0].set_yticks(range(len(protocols)), protocols)
        panels[0].invert_yaxis()
        goal = measured["target"].iloc[0].replace("_", " ")
        headline(figure, f"{results.name}: cost to {goal}{failures(results, costs=True)}")
        mean = "geometric mean" if (costs["statistic"] == GEOMETRIC).all() else "mean"
        legend(figure, *_key(bool(measured["censored"].any()), measured["seed"].nunique() > 1, mean))
    return figure


def _costs(measured: pd.DataFrame, protocols: list[str], panels: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    rows = []
    for measure, _, unit in panels:
        outcomes = measured[measured["measure"] == measure]
        values = [outcomes.loc[outcomes["protocol"] == name, "value"].to_numpy(dtype=np.float64) for name in protocols]
        statistic = statistic_of(measure, values)
        for name in protocols:
            outcomes = measured[(measured["measure"] == measure) & (measured["protocol"] == name)]
            reached, before = (outcomes[end].to_numpy(dtype=np.float64) for end in ("value", "lower"))
            cost = estimate(
                SeedSample((*outcomes["seed"],), reached, outcomes["censored"].to_numpy(dtype=bool), before), statistic
            )
            shown = cost.at_least if cost.censored else cost.mean
            low, high = cost.bounds if cost.wide and not cost.censored else (cost.low, cost.high)
            low = float(np.maximum(low, 0.0))  # no cost is below 0
            rows.append((measure, name, unit, shown, low, high, cost.n, cost.reached, statistic))
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
        runs = measured[measured["protocol"] == name]
        values = runs["value"].to_numpy(dtype=np.float64)
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
            span = [[end - min(max(low, left), end)], [high - end]]
            axes.errorbar(end, row, xerr=span, color="black", linewidth=1.2, capsize=2.5, capthick=1.2)
        if end == 0:
            beside(axes, "0", (left, row), (5, 0), va="center")
        if len(values) > 1:
            dots: dict[str, Any] = {"markersize": 2.8, "markeredgecolor": "black", "markeredgewidth": 0.6}
            axes.plot(values, np.full(len(values), row + 0.2), "o", color="white", **dots, zorder=4)
        if censored:
            at = max(end, float(values.max())), row
            beside(axes, f"→ {got} of {several}", at, (5, 0), va="center", color="#333333")
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


MEASURES = {"round_duration": "mean round", "time_to_target": "time to target"}


def speed_up(
    results: Results,
    baseline: str | None = None,
    target: Mapping[str, Any] | None = None,
    protocols: Sequence[str] | None = None,
) -> Picture:
    """Plot time of the baseline ÷ time of each protocol: for the mean round, and to the target if there is one.

    ``baseline`` defaults to the first protocol that waits for all clients; ``protocols`` are the others. Times are
    divided within each seed that both protocols have; the figure shows the geometric mean and its 95 % interval
    (Student's t of the logarithms; Welch's for protocols of several studies that are not paired). If some run did not
    reach the target, or met it at its first evaluation, the point is a one-sided 95 % limit, and an arrow points to
    where the ratio lies. References, such as training with all features in one place, are left out. ``numbers``:
    ``ratios`` (measure, protocol, mean, low, high, n, bound, common). Raises NotRecordedError if no protocol waits for
    all clients, if there is no second protocol, or if no times can be divided; ResultsError for an unknown baseline.
    """
    baseline = _baseline(results) if baseline is None else baseline
    if baseline not in results.protocols:
        raise ResultsError(f"there is no protocol {baseline!r}", str(results.folder), ", ".join(results.protocols))
    measured = outcomes(results, target)
    references = {run.protocol for run in results.runs if run.info.reference}
    shown = results.protocols if protocols is None else protocols
    others = [name for name in results.protocols if name in shown and name not in (baseline, *references)]
    panels: dict[str, dict[str, Ratio]] = {}
    for measure in MEASURES:
        costs = measured[measured["measure"] == measure]
        if costs["target"].notna().any():
            costs = costs[costs["target"] == costs["target"].dropna().iloc[0]]
        speeds = {name: ratio(costs, name, baseline, not results.unpaired(name, baseline)) for name in others}
        known = {name: speed for name, speed in speeds.items() if speed is not None}
        if known:
            to = costs["target"].iloc[0]
            panels[MEASURES[measure] if pd.isna(to) else f"time to {target_label(to)}"] = known
    if not panels:
        raise NotRecordedError(f"no times to divide by those of {baseline}", str(results.folder))
    rows = [name for name in others if any(name in panel for panel in panels.values())]
    styles = protocol_styles(results)
    columns = ("mean", "low", "high", "n", "bound", "common")
    figures = attrgetter(*columns)
    ratios = [(title, name, *figures(each)) for title, panel in panels.items() for name, each in panel.items()]
    numbers = {"ratios": frame(("measure", "protocol", *columns), ratios)}
    width = 2.2 + 2.9 * len(panels)
    across = columns_of(len(panels), width, rows)
    height = 0.75 + (0.6 + 0.34 * len(rows)) * ceil(len(panels) / across)
    with picture(width, height, numbers) as figure:
        drawn = panels_of(figure, len(panels), across)
        for axes, (title, panel) in zip(drawn, panels.items(), strict=True):
            for row, name in enumerate(rows):
                if name in panel:
                    _draw(axes, row, panel[name], styles[name])
            axes.margins(x=0.3 if any(each.bound in ("most", "least") for each in panel.values()) else 0.05)  # arrows
            axes.axvline(1, color="#888888", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
            x_axis(axes, f"{title}: times faster", "", logarithmic=True)
        drawn[0].set_yticks(range(len(rows)), rows)
        drawn[0].set_ylim(len(rows) - 0.5, -0.8)  # above the first row is the number of its point
        several = max(each.n for panel in panels.values() for each in panel.values()) > 1
        pairing = "paired over seeds" if several else "one seed"
        if alone := [name for name in rows if results.unpaired(name, baseline)]:
            pairing += f", but independent runs of {alone[0] if len(alone) == 1 else f'{len(alone)} protocols'}"
        note = f"{pairing}; a round is a server step{failures(results, costs=True)}"
        headline(figure, f"{results.name}: speed-up against {baseline}", note)
        _ratio_key(figure, several, any(each.bound != "exact" for panel in panels.values() for each in panel.values()))
    return figure


def _baseline(results: Results) -> str:
    baseline = results.baseline or next((run.protocol for run in results.runs if run.info.waits_for_all), None)
    if baseline is None or len(results.protocols) < 2:
        raise NotRecordedError("no protocol waits for all clients, to compare the others with", str(results.folder))
    return baseline


def _draw(axes: Axes, row: int, ratio: Ratio, style: Style) -> None:
    look: dict[str, Any] = {"color": style.color, "marker": style.marker, "markersize": 5, "linestyle": "none"}
    text = f"{three_digits(ratio.mean, ratio.bound)}×"
    if ratio.bound != "exact":
        look["markerfacecolor"] = "white"
        text = {"most": f"< {text}", "least": f"> {text}", "none": "?", "between": str(ratio)}[ratio.bound]
    if ratio.bound in ("most", "least"):
        end = (-22, 0) if ratio.bound == "most" else (22, 0)
        arrow = {"arrowstyle": "<-", "color": style.color, "linewidth": 1.2}  # its text is at the arrow's end
        axes.annotate("", (ratio.mean, row), end, textcoords="offset points", arrowprops=arrow)
    if ratio.high > ratio.low:
        axes.plot([ratio.low, ratio.high], [row, row], color=style.color, linewidth=1.6)
    axes.plot([ratio.mean], [row], **look)
    beside(axes, text, (ratio.mean, row), (0, 6), ha="center", va="bottom")


def _ratio_key(figure: Picture, several: bool, censored: bool) -> None:
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5, "color": "#555555"}
    handles, labels = [Line2D([], [], **dot)], ["geometric mean" if several else "one seed"]
    if several:
        handles.append(Line2D([], [], color="#555555", linewidth=1.6))
        labels.append("95 % interval")
    if censored:
        handles.append(Line2D([], [], **dot, markerfacecolor="white"))
        labels.append("costs not exact: a 95 % limit" if several else "costs not exact: a bound")
    legend(figure, handles, labels)
