"""Figures of one seed's events: a Gantt chart of all parties, and the share of time in which links move bytes."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from vflsim.plotting.selection import Place, Window, length, one_seed
from vflsim.plotting.style import Picture, headline, legend, party_label, picture, remark, sides, stacked, x_axis
from vflsim.results.events import Activities, Ints, Spans, activities, activity
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats

ACTIVITIES = {
    "compute": ("compute", "#3B5B92", (0.34, 0.94)),
    "activation": ("waits for activation", "#D8D8D8", (0.34, 0.94)),
    "upload": ("upload delay", "#F0B95B", (0.34, 0.94)),
    "share": ("sharing delay", "#C9793B", (0.34, 0.94)),
    "latency": ("latency", "#B9D8C2", (0.06, 0.28)),
    "transfer": ("transfer", "#2A8C6A", (0.06, 0.28)),
    "aside": ("stands aside", "#D7EBE2", (0.06, 0.28)),
    "outage": ("out", "#F3C4BE", (0.0, 1.0)),
}
"""First part of an event's kind -> label, colour, and its vertical part of the party's row."""


_OTHER = ("other", "#B07AA1", (0.34, 0.94))


_CROSS: dict[str, Any] = {"color": "#D01C1F", "marker": "x", "markersize": 4, "linestyle": "none", "zorder": 4}


_STEP: dict[str, Any] = {"color": "#222222", "linewidth": 0.5, "linestyle": (0, (3, 2))}


_ABSENT = "#ececec"


_SHOWN_ROUNDS = 2


_SHOWN_STEPS = 40


_ROW, _LOW_ROW, _TALLEST = 0.2, 0.1, 16.0
"""Inches of a row; of a row where there are many; all rows together, above which they get lower."""


_LABEL = 0.018
"""Inches of a party's name per point of the font."""


_MOST = 41
"""Most parties with a row in each panel; of more, the server and evenly spaced clients are drawn."""


def timeline(
    results: Results,
    protocols: Sequence[str] | None = None,
    seed: int | None = None,
    start: Place = None,
    end: Place = None,
) -> Picture:
    """Plot the activities of every party from ``start`` to ``end`` (seconds, or with a unit), one panel per protocol.

    Work fills the upper part of a party's row, messages the lower part of the sender's row. Pale activities were
    abandoned or cut off by the end of the run; a red cross marks lost ones; a reddish row is an outage, in which
    messages from and to the party stand aside; vertical lines are server steps. Of more than 40 clients, evenly spaced
    ones are drawn. Defaults: the first seed that most protocols have, from 0 until the slowest protocol has finished
    two rounds. ``numbers``: ``activities`` (the events of the window with protocol, seed and label; transfers in parts
    that move and parts ``aside``), ``steps`` (protocol, seed, time_s of the lines). Raises NotRecordedError if events
    were not kept.
    """
    runs = one_seed(results, protocols, seed)
    window = Window.of(start, _default_end(runs) if end is None else end)
    events = [_window(run, window.start, window.end) for run in runs]
    parties = _parties(runs)
    drawn = parties[:: -(-(len(parties) - 1) // (_MOST - 1)) or 1]
    rows = len(drawn) * len(runs)
    row = min(_ROW, max(_LOW_ROW, _TALLEST / rows))
    steps = [_steps(run, window.start, window.end) for run in runs]
    numbers = {"activities": pd.concat(events, ignore_index=True), "steps": pd.concat(steps, ignore_index=True)}
    with picture(8.4, 1.0 + len(runs) * (0.35 + row * len(drawn)), numbers) as figure:
        panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        room = figure.get_figheight() - 1.0 - 0.35 * len(runs)
        every = ceil(_LABEL * figure.rc["font.size"] * rows / room) if room > 0 else len(drawn)
        for axes, run, frame, ends in zip(panels, runs, events, steps, strict=True):
            its = frame[frame["party"].isin(drawn)]
            _panel(axes, run, its, ends["time_s"].to_numpy(), drawn, window.start, window.end)
            labels = [party_label(each.replace("-", " ")) for each in drawn[::every]]
            axes.set_yticks([at + 0.5 for at in range(0, len(drawn), every)], labels)
        if len(drawn) < len(parties):
            remark(panels[0], f"the server and {len(drawn) - 1} of {len(parties) - 1} clients")
        x_axis(panels[-1], "virtual time", "s", logarithmic=False)
        panels[-1].set_xlim(window.start, window.end)
        headline(figure)
        _key(figure, events, any(map(len, steps)))
    return figure


def _default_end(runs: Sequence[StoredRun]) -> float:
    """Return when the slowest protocol finished its second round; without rounds, the end of the last event."""
    ends = []
    for run in runs:
        rounds = run.table("rounds")["end_s"].to_pylist() if run.has("rounds") else []
        ends.append(rounds[min(_SHOWN_ROUNDS, len(rounds)) - 1] if rounds else 0.0)
    latest = max(ends) or max(float(run.frame("events")["end_s"].max()) for run in runs)
    if not latest > 0:
        raise NotRecordedError("nothing happened in these runs", str(runs[0].folder))
    return latest


def _window(run: StoredRun, start: float, end: float) -> pd.DataFrame:
    events = run.frame("events")
    events = events[(events["start_s"] < end) & (events["end_s"] > start)]
    events = _in_parts(events.assign(activity=events["kind"].astype(str).map(activity)))
    return events.assign(label=[ACTIVITIES.get(name, _OTHER)[0] for name in events["activity"]])


def _in_parts(events: pd.DataFrame) -> pd.DataFrame:
    """Cut transfers into the parts that move and those ``aside``, during an outage of their sender or receiver."""
    outages = events[events["activity"] == "outage"]
    transfers = events[events["activity"] == "transfer"].astype({"outcome": str})
    parts = [events[events["activity"] != "transfer"]]
    for party, start, end in outages[["party", "start_s", "end_s"]].to_numpy().tolist():
        concerned = (transfers["party"] == party) | (transfers["peer"] == party)
        concerned &= (transfers["start_s"] < end) & (transfers["end_s"] > start)
        moves = transfers[concerned]
        before, after = moves[moves["start_s"] < start], moves[moves["end_s"] > end]
        moving = before.assign(end_s=start, outcome="done"), after.assign(start_s=end)
        parts.append(
            moves.assign(start_s=moves["start_s"].clip(start), end_s=moves["end_s"].clip(upper=end), activity="aside")
        )
        transfers = pd.concat([transfers[~concerned], *moving])
    return pd.concat([*parts, transfers], ignore_index=True)


def _steps(run: StoredRun, start: float, end: float) -> pd.DataFrame:
    """Return the ends of the server steps in the window; none if they are too many to draw."""
    ends = run.table("rounds")["end_s"].to_numpy() if run.has("rounds") else np.empty(0)
    shown = ends[(ends >= start) & (ends <= end)]
    shown = shown if len(shown) <= _SHOWN_STEPS else shown[:0]
    return pd.DataFrame({"protocol": run.protocol, "seed": run.seed, "time_s": shown})


def _parties(runs: Sequence[StoredRun]) -> list[str]:
    """List the server, then every client of the runs, by number."""
    named = {str(name) for run in runs for name in run.table("events")["party"].unique().to_pylist()}
    clients = named | {f"client-{m}" for run in runs for m in run.info.participants}
    server = party_name(SERVER)
    return [server, *sorted(clients - {server}, key=lambda name: (len(name), name))]


def _panel(
    axes: Axes, run: StoredRun, events: pd.DataFrame, steps: Floats, parties: list[str], start: float, end: float
) -> None:
    rows = {name: position for position, name in enumerate(parties)}
    present = {*map(party_name, (SERVER, *run.info.participants))}
    for party, position in rows.items():
        if party not in present:
            axes.axhspan(position, position + 1, color=_ABSENT, linewidth=0)
    for (name, sound), group in events.groupby(["activity", events["outcome"] == "done"], sort=False):
        _, color, (bottom, top) = ACTIVITIES.get(str(name), _OTHER)
        left = group["start_s"].clip(lower=start).to_numpy(dtype=np.float64)
        right = group["end_s"].clip(upper=end).to_numpy(dtype=np.float64)
        at = group["party"].astype(str).map(rows).to_numpy(dtype=np.float64)
        # The server's row is on top and rows count downwards, so "upper part" means smaller y.
        upper, lower = at + 1 - top, at + 1 - bottom
        corners = np.stack(
            [np.stack([x, y], -1) for x, y in ((left, upper), (right, upper), (right, lower), (left, lower))], 1
        )
        order = {"outage": 0.8, "aside": 0.9}.get(str(name), 1)  # other activities stay visible
        # The edge line keeps a millisecond visible in a window of minutes.
        look: dict[str, Any] = {"color": color, "linewidth": 0.4, "alpha": 1.0 if sound else 0.4}
        axes.add_collection(PolyCollection(list(corners), **look, zorder=order))
    lost = events[(events["outcome"] == "lost") & (events["end_s"] <= end)]
    axes.plot(lost["end_s"], lost["party"].astype(str).map(rows).astype(float) + 0.83, **_CROSS)
    if len(steps):
        axes.vlines(steps, 0, len(parties), **_STEP, zorder=0.5)
    ended, title = float(run.table("metrics")["time_s"][-1].as_py()), f"{run.protocol}, seed {run.seed}"
    if start <= ended < end:
        axes.axvline(ended, color="#222222", linewidth=1)
        reason = f" ({run.info.stop_reason})" if run.info.stop_reason else ""
        title += f"; the run ends after {ended:.3g} s{reason}"
    axes.set_ylim(len(parties), 0)
    axes.tick_params(axis="y", length=0, labelsize="small")
    axes.grid(visible=False, axis="y")
    axes.set_title(title, loc="left")


def _key(figure: Figure, events: Sequence[pd.DataFrame], stepped: bool) -> None:
    seen = set(pd.concat(events)["activity"])
    looks = [(name, *look[:2]) for name, look in ACTIVITIES.items() if name in seen]
    looks += [("other", *_OTHER[:2])] if seen - set(ACTIVITIES) else []
    handles: list[Artist] = [Patch(facecolor=color) for _, _, color in looks]
    labels = [label for _, label, _ in looks]
    if any((frame["outcome"] == "lost").any() for frame in events):
        handles.append(Line2D([], [], **_CROSS))
        labels.append("lost")
    if stepped:
        handles.append(Line2D([], [], **_STEP))
        labels.append("server step")
    if any(axes.patches for axes in figure.axes):
        handles.append(Patch(facecolor=_ABSENT))
        labels.append("takes no part")
    legend(figure, handles, labels, columns=7)


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
    numbers = {"links": pd.concat([_links_of(*each) for each in series], ignore_index=True)}
    with picture(6.4, 1.2 + 1.15 * len(series), numbers) as figure:
        panels = figure.subplots(len(series), 1, squeeze=False)[:, 0]
        for axes, (run, edges, busy) in zip(panels, series, strict=True):
            _draw_links(axes, edges, busy)
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


def _links_of(run: StoredRun, edges: Floats, busy: dict[str, Floats]) -> pd.DataFrame:
    bins = {"start_s": edges[:-1], "end_s": edges[1:]}
    links = stacked({link: bins | {"share": shares} for link, shares in busy.items()}, "link")
    links.insert(0, "protocol", run.protocol)
    links.insert(1, "seed", run.seed)
    return links


def utilisation(events: Activities, participants: Sequence[int], edges: Floats) -> dict[str, Floats]:
    """Compute the share of each bin (``edges`` ascending) in which each of ``LINKS`` is busy; ``out``: parties out.

    Empty if no transfer took any time; without ``out`` if there was no outage.
    """
    out = events.downtime()
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
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return zip(distinct, np.split(order, first[1:]), strict=False)


def _share(spans: Sequence[Spans], edges: Floats) -> Floats:
    covered: Floats = np.mean([np.diff(span.before(edges)) for span in spans], axis=0) / np.diff(edges)
    return covered


def _draw_links(axes: Axes, edges: Floats, busy: dict[str, Floats]) -> None:
    if "out" in busy:
        axes.fill_between(edges, np.append(busy["out"], busy["out"][-1]) * 100, step="post", **_OUT, zorder=0.5)
    for name, look in LINKS.items():
        axes.stairs(busy[name] * 100, edges, baseline=None, **look)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, None)
    axes.margins(y=0.1)
