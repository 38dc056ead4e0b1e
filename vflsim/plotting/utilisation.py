"""Link utilisation: the share of time in which each direction moves bytes, over a run."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from vflsim.plotting.selection import Place, Window, length, one_seed
from vflsim.plotting.style import Picture, headline, legend, picture, remark, sides, stacked, x_axis
from vflsim.results.events import Activities, Ints, Spans, activities, downtime
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats

BINS = 100
"""Number of bins per run."""
LINKS: dict[str, dict[str, Any]] = {
    "server up": {"color": "#D55E00", "linewidth": 1.5},
    "server down": {"color": "#0072B2", "linewidth": 1.5},
    "clients up (mean)": {"color": "#D55E00", "linewidth": 1.2, "linestyle": (0, (1, 1))},
    "clients down (mean)": {"color": "#0072B2", "linewidth": 1.2, "linestyle": (0, (1, 1))},
}
_OUT: dict[str, Any] = {"color": "#bbbbbb", "alpha": 0.6, "linewidth": 0}


def link_utilisation(
    results: Results,
    protocols: Sequence[str] | None = None,
    seed: int | None = None,
    bins: int = BINS,
    start: Place = None,
    end: Place = None,
) -> Picture:
    """Plot the share of time in which the server's and the clients' links move bytes: a panel per protocol, one seed.

    A direction is busy while at least one message moves over it; latency does not count, and a message does not move
    while its sender or receiver is out. Bins go from ``start`` to ``end`` (default: all of the run). Grey: the share of
    parties that are out. The default seed is the first that most protocols have. ``numbers``: ``links`` (protocol,
    seed, link, start_s and end_s of the bin, share of time; for ``out``: of parties). Raises NotRecordedError if events
    were not kept, or nothing moved.
    """
    series, window = [], Window.of(start, end)
    for run in one_seed(results, protocols, seed):
        edges = np.linspace(window.start, min(window.end, length(run)), bins + 1)
        if edges[-1] > edges[0] and (busy := utilisation(activities(run), run.info.participants, edges)):
            series.append((run, edges, busy))
    if not series:
        raise NotRecordedError("no transfer took any time", str(results.folder))
    numbers = {"links": pd.concat([_numbers(*each) for each in series], ignore_index=True)}
    with picture(6.4, 1.2 + 1.15 * len(series), numbers) as figure:
        panels = figure.subplots(len(series), 1, squeeze=False)[:, 0]
        for axes, (run, edges, busy) in zip(panels, series, strict=True):
            _panel(axes, edges, busy)
            axes.set_title(f"{run.protocol}, seed {run.seed}", loc="left")
        sides(figure, "share of time [%]")
        x_axis(panels[-1], "virtual time", "s", logarithmic=False)
        panels[-1].set_xlim(series[-1][1][0], series[-1][1][-1])
        headline(figure)
        remark(panels[0], f"{results.name}: how long links move bytes; {bins} bins for each run")
        handles: list[Artist] = [Line2D([], [], **look) for look in LINKS.values()]
        labels = list(LINKS)
        if any("out" in busy for _, _, busy in series):
            handles.append(Patch(**_OUT))
            labels.append("parties that are out")
        legend(figure, handles, labels)
    return figure


def _numbers(run: StoredRun, edges: Floats, busy: dict[str, Floats]) -> pd.DataFrame:
    bins = {"start_s": edges[:-1], "end_s": edges[1:]}
    links = stacked({link: bins | {"share": shares} for link, shares in busy.items()}, "link")
    links.insert(0, "protocol", run.protocol)
    links.insert(1, "seed", run.seed)
    return links


def utilisation(events: Activities, participants: Sequence[int], edges: Floats) -> dict[str, Floats]:
    """Compute the share of each bin (``edges`` ascending) in which each of ``LINKS`` is busy; ``out``: parties out.

    Empty if no transfer took any time; without ``out`` if there was no outage.
    """
    outages = events.where(events.is_a("outage"))
    out = downtime(outages.party, outages.start, outages.end)
    moved = _moved(events, out)
    if not moved:
        return {}
    sent = {party: Spans.joined(spans for (sender, _), spans in moved.items() if sender == party) for party, _ in moved}
    got = {party: Spans.joined(spans for (_, other), spans in moved.items() if other == party) for _, party in moved}
    nothing = Spans.union(np.empty(0), np.empty(0))
    shares = {
        "server up": _share([sent.get(SERVER, nothing)], edges),
        "server down": _share([got.get(SERVER, nothing)], edges),
        "clients up (mean)": _share([sent.get(m, nothing) for m in participants], edges),
        "clients down (mean)": _share([got.get(m, nothing) for m in participants], edges),
    }
    if out:
        shares["out"] = _share([out.get(party, nothing) for party in (SERVER, *participants)], edges)
    return shares


def _moved(events: Activities, out: dict[int, Spans]) -> dict[tuple[int, int], Spans]:
    """Return when messages moved, by (sender, receiver); they stand still while one of both is ``out``."""
    transfers = events.where(events.is_a("transfer") & (events.end > events.start) & (events.bytes > 0))
    moved = {}
    for pair, rows in _groups(transfers.party * 2**31 + transfers.peer):
        sender, receiver = int(pair // 2**31), int(pair % 2**31)
        spans = Spans.union(transfers.start[rows], transfers.end[rows])
        for party in {sender, receiver} & out.keys():
            spans = spans.minus(out[party])
        moved[sender, receiver] = spans
    return moved


def _groups(keys: Ints) -> Iterable[tuple[int, Ints]]:
    """Return (key, its positions) for every key."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return zip(distinct, np.split(order, first[1:]), strict=False)


def _share(spans: Sequence[Spans], edges: Floats) -> Floats:
    covered: Floats = np.mean([np.diff(span.before(edges)) for span in spans], axis=0) / np.diff(edges)
    return covered


def _panel(axes: Axes, edges: Floats, busy: dict[str, Floats]) -> None:
    if "out" in busy:
        axes.fill_between(edges, np.append(busy["out"], busy["out"][-1]) * 100, step="post", **_OUT, zorder=0.5)
    for name, look in LINKS.items():
        axes.stairs(busy[name] * 100, edges, baseline=None, **look)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, None)
    axes.margins(y=0.1)
