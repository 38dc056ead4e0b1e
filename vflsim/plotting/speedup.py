"""Speed-up over a baseline that waits for all clients: ratios of times, paired over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vflsim.errors import ResultsError
from vflsim.plotting.numbers import frame
from vflsim.plotting.protocol_style import Style, protocol_styles
from vflsim.plotting.style import Picture, failures, headline, legend, picture, remark, target_label, x_axis
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.pairs import Ratio, ratio, three_digits
from vflsim.results.statistics.summary import outcomes

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
        own = measured[measured["measure"] == measure]
        if own["target"].notna().any():
            own = own[own["target"] == own["target"].dropna().iloc[0]]
        speeds = {name: ratio(own, name, baseline, not results.unpaired(name, baseline)) for name in others}
        found = {name: speed for name, speed in speeds.items() if speed is not None}
        if found:
            to = own["target"].iloc[0]
            panels[MEASURES[measure] if pd.isna(to) else f"time to {target_label(to)}"] = found
    if not panels:
        raise NotRecordedError(f"no times to divide by those of {baseline}", str(results.folder))
    rows = [name for name in others if any(name in found for found in panels.values())]
    styles = protocol_styles(results)
    columns = ("mean", "low", "high", "n", "bound", "common")
    told = attrgetter(*columns)
    ratios = [(title, name, *told(each)) for title, own in panels.items() for name, each in own.items()]
    numbers = {"ratios": frame(("measure", "protocol", *columns), ratios)}
    with picture(2.2 + 2.9 * len(panels), 1.35 + 0.34 * len(rows), numbers) as figure:
        drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, found) in zip(drawn, panels.items(), strict=True):
            for row, name in enumerate(rows):
                if name in found:
                    _draw(axes, row, found[name], styles[name])
            axes.axvline(1, color="#888888", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
            x_axis(axes, f"{title}: times faster", "", logarithmic=True)
        drawn[0].set_yticks(range(len(rows)), rows)
        drawn[0].set_ylim(len(rows) - 0.5, -0.5)
        headline(drawn[0], f"{results.name}: speed-up against {baseline}")
        several = max(found.n for panel in panels.values() for found in panel.values()) > 1
        pairing = "paired over seeds" if several else "one seed"
        if alone := [name for name in rows if results.unpaired(name, baseline)]:
            pairing += f", but independent runs of {alone[0] if len(alone) == 1 else f'{len(alone)} protocols'}"
        remark(drawn[0], f"{pairing}; a round is a server step{failures(results, costs=True)}")
        _key(figure, several, any(found.bound != "exact" for panel in panels.values() for found in panel.values()))
    return figure


def _baseline(results: Results) -> str:
    found = results.baseline or next((run.protocol for run in results.runs if run.info.waits_for_all), None)
    if found is None or len(results.protocols) < 2:
        raise NotRecordedError("no protocol waits for all clients, to compare the others with", str(results.folder))
    return found


def _draw(axes: Axes, row: int, found: Ratio, style: Style) -> None:
    look: dict[str, Any] = {"color": style.color, "marker": style.marker, "markersize": 5, "linestyle": "none"}
    text = f"{three_digits(found.mean, found.bound)}×"
    if found.bound != "exact":
        look["markerfacecolor"] = "white"
        text = {"most": f"< {text}", "least": f"> {text}", "none": "?", "between": str(found)}[found.bound]
    if found.bound in ("most", "least"):
        end = (-22, 0) if found.bound == "most" else (22, 0)
        arrow = {"arrowstyle": "<-", "color": style.color, "linewidth": 1.2}  # its text is at the arrow's end
        axes.annotate("", (found.mean, row), end, textcoords="offset points", arrowprops=arrow)
    if found.high > found.low:
        axes.plot([found.low, found.high], [row, row], color=style.color, linewidth=1.6)
    axes.plot([found.mean], [row], **look)
    axes.annotate(
        text, (found.mean, row), (0, 6), textcoords="offset points", ha="center", va="bottom", fontsize="small"
    )


def _key(figure: Picture, several: bool, censored: bool) -> None:
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5, "color": "#555555"}
    handles, labels = [Line2D([], [], **dot)], ["geometric mean" if several else "one seed"]
    if several:
        handles.append(Line2D([], [], color="#555555", linewidth=1.6))
        labels.append("95 % interval")
    if censored:
        handles.append(Line2D([], [], **dot, markerfacecolor="white"))
        labels.append("costs not exact: a 95 % limit" if several else "costs not exact: a bound")
    legend(figure, handles, labels)
