"""Share of rounds in which the server step waited for each client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vflsim.plotting.numbers import frame
from vflsim.plotting.protocol_style import Style, protocol_styles
from vflsim.plotting.selection import finished
from vflsim.plotting.step_waits import StepWaits, step_waits
from vflsim.plotting.style import Picture, failures, headline, legend, picture, remark, sides
from vflsim.results.events import activities
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats

_OTHERS = {-1: "deadline", 0: "none"}
"""Rounds that waited for no client: the server's deadline began the step, or the messages were already there."""
_NOBODY = "#9a9a9a"
_ABSENT = "#ececec"
_TICKS = 15
"""Most clients that are named on the axis."""


def waited_for(results: Results) -> Picture:
    """Plot the share of rounds that waited for each client, one panel per protocol, seeds pooled.

    A step waited for a client if one of its messages arrived in the instant in which the step began
    (:mod:`vflsim.plotting.step_waits`); clients that arrive together share the round. Grey bars are the shares of
    rounds that waited for a deadline, or for nothing, because their messages were already there. If clients (or the
    server) of a protocol wait for messages before they send their own, a second panel shows these waits; a round with
    several of them counts each. ``numbers``: ``shares`` (protocol, stage: ``last`` or ``before``, client: 0 for nobody,
    -1 for a deadline, share of rounds). Raises NotRecordedError if events were not kept, or no message reached the
    server.
    """
    found = {name: _stages(runs) for name, runs in finished(results, "rounds", "events").items()}
    panels = [(name, stage) for name, stages in found.items() for stage in stages]
    if not panels:
        raise NotRecordedError("no message reached the server in any finished run", str(results.folder))
    shares = {(name, stage.name): stage.shares for name, stage in panels}
    clients = max(max(own) for own in shares.values())
    styles = protocol_styles(results)
    others = [one for one in _OTHERS if any(own.get(one, 0) > 0 for own in shares.values())]
    rows = [(*key, client, share) for key, own in shares.items() for client, share in own.items()]
    numbers = {"shares": frame(("protocol", "stage", "client", "share"), rows)}
    with picture(5.8, 1.1 + 0.82 * len(panels), numbers) as figure:
        drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, stage) in zip(drawn, panels, strict=True):
            _panel(axes, stage.shares, clients, others, styles[name])
            axes.set_title(name + (f": {stage.title}" if len(found[name]) > 1 else ""), loc="left")
        sides(figure, "share of rounds")
        headline(figure)
        drawn[-1].set_xlabel("client")
        remark(drawn[0], f"{results.name}, all seeds together{failures(results)}")
        handles, labels = [Patch(facecolor="#666666")], ["client waited for"]
        if others:
            handles.append(Patch(facecolor=_NOBODY, hatch="////", edgecolor="white"))
            labels.append("no client (a deadline, or none: messages already there)")
        if any(set(range(1, clients + 1)) - own.keys() for own in shares.values()):
            handles.append(Patch(facecolor=_ABSENT))
            labels.append("takes no part")
        legend(figure, handles, labels)
    return figure


@final
@dataclass(frozen=True)
class _WaitedShares:
    """Share of rounds by client (0: nobody, -1: a deadline), for the last messages of rounds or for those before."""

    name: str
    title: str
    shares: dict[int, float]


def _stages(runs: list[StoredRun]) -> list[_WaitedShares]:
    """Compute the shares for the last messages of rounds, and for those before; none if no message arrived."""
    events = [activities(run) for run in runs]
    if not any((own.is_a("transfer") & (own.peer == SERVER)).any() for own in events):
        return []
    found = [step_waits(run, own) for run, own in zip(runs, events, strict=True)]
    rounds = sum(len(own.start) for own in found)
    if not rounds:
        return []
    clients = sorted({client for run in runs for client in run.info.participants})
    stages = [
        _WaitedShares("last", "the message that lets the step begin", _pooled(found, StepWaits.shares, clients, rounds))
    ]
    nobody = [np.setdiff1d(np.arange(len(own.start)), own.round) for own in found]
    late = sum(int((own.ready > own.start)[none].sum()) for own, none in zip(found, nobody, strict=True))
    stages[0].shares[-1] = late / rounds
    stages[0].shares[0] = (sum(map(len, nobody)) - late) / rounds
    if kinds := dict.fromkeys(kind for own in found for kind in own.path.kinds):
        title = f"before that ({', '.join(kind.replace('_', ' ') for kind in kinds)})"
        stages.append(_WaitedShares("before", title, _pooled(found, StepWaits.shares_before, clients, rounds)))
        stages[1].shares[0] = sum(len(own.start) - len(np.unique(own.path.round)) for own in found) / rounds
    return stages


def _pooled(
    found: list[StepWaits], shares: Callable[[StepWaits, list[int]], Floats], clients: list[int], rounds: int
) -> dict[int, float]:
    total = np.sum([shares(own, clients) * len(own.start) for own in found], axis=0) / rounds
    return dict(zip(clients, total.tolist(), strict=True))


def _panel(axes: Axes, shares: dict[int, float], clients: int, others: list[int], style: Style) -> None:
    numbers = np.array([client for client in shares if client > 0])
    axes.bar(numbers, [shares[client] for client in numbers], width=0.8, color=style.color)
    places = [clients + 1.7 + 1.4 * k * max(1, clients / _TICKS) for k in range(len(others))]
    for place, one in zip(places, others, strict=True):
        axes.bar(place, shares.get(one, 0), width=0.8, color=_NOBODY, hatch="////", edgecolor="white")
    for absent in sorted(set(range(1, clients + 1)) - shares.keys()):
        axes.axvspan(absent - 0.5, absent + 0.5, color=_ABSENT, linewidth=0, zorder=0)
    axes.set_xlim(0.3, max(places, default=clients) + 0.7)
    ticks = range(1, clients + 1, -(-clients // _TICKS))
    axes.set_xticks([*ticks, *places], [*map(str, ticks), *(_OTHERS[one] for one in others)])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
