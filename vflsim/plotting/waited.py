"""Who was waited for: how often each client was the one that a server step had to wait for."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vflsim.plotting.selection import finished
from vflsim.plotting.style import Picture, Style, failures, legend, picture, protocol_styles, remark, sides
from vflsim.plotting.waits import waits
from vflsim.results.activities import activities
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER

_NOBODY = "#9a9a9a"
_ABSENT = "#ececec"
_TICKS = 15
"""No more clients than this are named on the axis."""


def waited_for(results: Results) -> Picture:
    """Share of rounds in which each client was waited for, one panel a protocol, seeds pooled.

    A client was waited for if a message of its that the step used arrived in the very instant in which the step began
    (:mod:`vflsim.plotting.waits`); clients that arrive together share the round. The grey bar is the share of rounds
    that waited for nobody. Raises NotRecordedError where events were not kept, or no message ever reached the server.
    """
    shares = {name: found for name, runs in finished(results, "rounds", "events").items() if (found := _shares(runs))}
    if not shares:
        raise NotRecordedError("in no finished run did a message reach the server", str(results.folder))
    clients = max(max(own) for own in shares.values())
    styles = protocol_styles(results.protocols)
    with picture(5.8, 1.1 + 0.82 * len(shares)) as figure:
        panels = figure.subplots(len(shares), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, own) in zip(panels, shares.items(), strict=True):
            _panel(axes, own, clients, styles[name])
            axes.set_title(name, loc="left")
        sides(figure, "share of rounds")
        panels[-1].set_xlabel("client")
        remark(panels[0], f"{results.name}, all seeds together{failures(results)}")
        handles = [Patch(facecolor="#666666"), Patch(facecolor=_NOBODY, hatch="////", edgecolor="white")]
        labels = ["client waited for", "nobody: all was there, or a deadline was over"]
        if any(set(range(1, clients + 1)) - own.keys() for own in shares.values()):
            handles.append(Patch(facecolor=_ABSENT))
            labels.append("takes no part")
        legend(figure, handles, labels)
    return figure


def _shares(runs: list[StoredRun]) -> dict[int, float]:
    """Share of rounds by client; empty where no message ever reached the server."""
    rounds, counted = 0, {m: 0.0 for run in runs for m in run.info.participants}
    heard = False
    for run in runs:
        events = activities(run)
        heard |= bool((events.is_a("transfer") & (events.peer == SERVER)).any())
        found, clients = waits(run, events), list(run.info.participants)
        for client, share in zip(clients, found.shares(clients), strict=True):
            counted[client] += share * len(found.start)
        rounds += len(found.start)
    return {m: count / rounds for m, count in sorted(counted.items())} if heard and rounds else {}


def _panel(axes: Axes, shares: dict[int, float], clients: int, style: Style) -> None:
    numbers, values = np.array(list(shares)), np.array(list(shares.values()))
    axes.bar(numbers, values, width=0.8, color=style.color)
    nobody = 1 - float(values.sum())
    if nobody > 1e-9:
        axes.bar(clients + 1.5, nobody, width=0.8, color=_NOBODY, hatch="////", edgecolor="white")
    for absent in sorted(set(range(1, clients + 1)) - shares.keys()):
        axes.axvspan(absent - 0.5, absent + 0.5, color=_ABSENT, linewidth=0, zorder=0)
    axes.set_xlim(0.3, clients + 2.2)
    ticks = range(1, clients + 1, -(-clients // _TICKS))
    axes.set_xticks([*ticks, clients + 1.5], [*map(str, ticks), "none"])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
