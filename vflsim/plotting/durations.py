"""How long rounds take: the distribution of server-step durations."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vflsim.plotting.style import (
    Picture,
    Style,
    failures,
    legend,
    picture,
    protocol_styles,
    remark,
    spread_widely,
    x_axis,
)
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics import Floats


def round_durations(results: Results, histogram: bool = False) -> Picture:
    """Empirical distribution of round durations per protocol, seeds pooled; the dot is the mean.

    With ``histogram`` the densities stand above it. Raises NotRecordedError where rounds were not kept.
    """
    rounds = results.rounds
    failed = {(run.protocol, run.seed) for run in results.failed}
    kept = [key not in failed for key in zip(rounds["protocol"], rounds["seed"], strict=True)]
    rounds = rounds[kept]
    seconds = {
        str(name): np.sort((own["end_s"] - own["start_s"]).to_numpy(dtype=np.float64))
        for name, own in rounds.groupby("protocol", observed=True, sort=False)
    }
    if not seconds:
        raise NotRecordedError("no round was completed in these runs", str(results.folder))
    pooled = np.concatenate(list(seconds.values()))
    logarithmic = spread_widely(np.quantile(pooled, [0.02, 0.98]))
    styles = protocol_styles(results.protocols)
    with picture(5.6, 5.2 if histogram else 3.6) as figure:
        *above, axes = figure.subplots(2 if histogram else 1, 1, sharex=True, squeeze=False)[:, 0]
        for upper in above:
            _densities(upper, seconds, styles, logarithmic)
        handles = [_distribution(axes, values, styles[name]) for name, values in seconds.items()]
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("cumulative share of rounds")
        x_axis(axes, "round duration", "s", logarithmic=logarithmic)
        (above or [axes])[0].set_title(results.name, loc="left")
        remark((above or [axes])[0], f"all seeds together; markers: means{failures(results)}")
        labels = [f"{name} (mean {values.mean():.3g} s, n = {len(values)})" for name, values in seconds.items()]
        legend(figure, handles, labels, columns=2)
    return figure


def _distribution(axes: Axes, values: Floats, style: Style) -> object:
    """The empirical distribution function, and a dot on it at the mean."""
    share = np.arange(1, len(values) + 1) / len(values)
    x, y = np.concatenate([values[:1], values]), np.concatenate([[0.0], share])
    axes.step(x, y, where="post", color=style.color, linestyle=style.dash, linewidth=1.6)
    mean = float(values.mean())
    # The mean of equal numbers may differ from them in the last bit.
    at = np.searchsorted(values, mean * (1 + 1e-9), side="right") / len(values)
    axes.plot([mean], [at], marker=style.marker, color=style.color, markersize=5, markeredgecolor="white", zorder=4)
    return Line2D([], [], color=style.color, linestyle=style.dash, linewidth=1.6, marker=style.marker, markersize=4)


def _densities(axes: Axes, seconds: dict[str, Floats], styles: dict[str, Style], logarithmic: bool) -> None:
    positive = np.concatenate([values[values > 0] for values in seconds.values()])
    space = np.geomspace if logarithmic else np.linspace
    edges = space(positive.min(), positive.max() * (1 + 1e-9), 41)
    for name, values in seconds.items():
        share, _ = np.histogram(values, edges)
        axes.stairs(share / len(values), edges, color=styles[name].color, fill=True, alpha=0.2)
        axes.stairs(share / len(values), edges, color=styles[name].color, linewidth=1.2)
    axes.set_ylabel("share of rounds per bin")
    axes.set_ylim(bottom=0)
