"""Time breakdown: activities on the critical path of rounds, and of clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vflsim.plotting.numbers import frame
from vflsim.plotting.selection import finished, length
from vflsim.plotting.spans import Spans
from vflsim.plotting.step_waits import step_waits
from vflsim.plotting.style import Picture, failures, headline, legend, picture, remark
from vflsim.results.activities import Activities, activities
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.results.statistics import Floats
from vflsim.streams import SERVER

PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "out": (("outage",), "#B5484B"),
    "client computes": (("compute",), "#3B5B92"),
    "upload delay": (("upload",), "#F0B95B"),
    "sharing delay": (("share",), "#C9793B"),
    "latency and transfer": (("latency", "transfer"), "#2A8C6A"),
    "waits for activation": (("activation",), "#D8D8D8"),
}
"""Part -> its activities and colour; at the same time, an earlier part takes precedence."""
_PART = {name: part for part, (names, _) in PARTS.items() for name in names}
SERVER_STEP, WAITING = "server step", "idle (queues, others, deadlines)"
COLORS = {**{name: color for name, (_, color) in PARTS.items()}, SERVER_STEP: "#8AA5D6", WAITING: "#F3F3F3"}


def time_breakdown(results: Results) -> Picture:
    """Split the mean round, and the average client's time, into activities; one bar a protocol, seeds pooled.

    The left panel shows the critical path (:mod:`vflsim.plotting.critical_path`): the activities of the parties waited
    for, from the round's start to its server step, then the step itself. The right panel shows the participants'
    activities over the whole run, on average. Idle is the rest: waiting for others, in a link's queue, or for a
    deadline.
    ``numbers``: ``rounds`` (protocol, part, seconds of the mean round, share), ``clients`` (protocol, part, share).
    Raises NotRecordedError if events were not kept, or no round was completed.
    """
    rounds, clients, seconds = {}, {}, {}
    for name, runs in finished(results, "rounds", "events").items():
        found = [_of_run(run) for run in runs]
        if count := sum(n for n, _, _ in found):
            path = {part: sum(path[part] for _, path, _ in found) / count for part in COLORS}
            seconds[name] = sum(path.values())
            rounds[name] = path
            clients[name] = {part: float(np.mean([own[part] for _, _, own in found])) for part in COLORS}
    rounds = {name: parts for name, parts in rounds.items() if seconds[name] > 0}
    if not rounds:
        raise NotRecordedError("no round of these runs took any time", str(results.folder))
    numbers = {
        "rounds": frame(
            ("protocol", "part", "seconds", "share"),
            [(name, part, value, value / seconds[name]) for name, own in rounds.items() for part, value in own.items()],
        ),
        "clients": frame(
            ("protocol", "part", "share"),
            [(name, part, value) for name in rounds for part, value in clients[name].items()],
        ),
    }
    with picture(8.4, 1.5 + 0.42 * len(rounds), numbers) as figure:
        left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.06})
        for row, name in enumerate(rounds):
            _bar(left, row, rounds[name])
            _bar(right, row, clients[name])
        left.set_yticks(range(len(rounds)), [f"{name}\n{seconds[name]:.3g} s" for name in rounds])
        left.invert_yaxis()
        for axes, label in ((left, "share of the mean round"), (right, "share of the average client's time")):
            axes.set_xlim(0, 1)
            axes.set_xlabel(label)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
        headline(left, results.name)
        remark(left, f"critical path; below names: mean round{failures(results)}")
        shown = [part for part in COLORS if any(own[part] > 0 for side in (rounds, clients) for own in side.values())]
        handles = [Patch(facecolor=COLORS[part], edgecolor="#999999", linewidth=0.4) for part in shown]
        legend(figure, handles, shown, columns=6 if len(shown) < 6 else 3)
    return figure


def _of_run(run: StoredRun) -> tuple[int, dict[str, float], dict[str, float]]:
    """Return completed rounds, total seconds per part of the critical path, and clients' mean share per part."""
    events = activities(run)
    found, end = step_waits(run, events), length(run)
    path, shares = dict.fromkeys(COLORS, 0.0), dict.fromkeys(COLORS, 0.0)
    for activity, seconds in found.path.seconds.items():
        path[_PART.get(activity, WAITING)] += seconds
    path[SERVER_STEP] += float((found.end - found.ready).sum())
    participants = run.info.participants
    for _, own in _by_client(events, participants):
        for part, before in _parts(own, np.array([0.0, end])).items():
            shares[part] += (before[1] - before[0]) / (end * len(participants)) if end > 0 else 0.0
    shares[WAITING] = max(1 - sum(shares.values()), 0.0)
    return len(found.start), path, shares


def _by_client(events: Activities, participants: tuple[int, ...]) -> list[tuple[int, Activities]]:
    """Group events by client: its own, and the server's messages to it."""
    client = np.where(events.party == SERVER, events.peer, events.party)
    order = np.argsort(client, kind="stable")
    first = np.searchsorted(client[order], participants, side="left")
    end = np.searchsorted(client[order], participants, side="right")
    return [(m, events.where(order[a:b])) for m, a, b in zip(participants, first, end, strict=True)]


def _parts(events: Activities, times: Floats) -> dict[str, Floats]:
    """Return the seconds before each of ``times`` spent on each part; the first of ``PARTS`` takes precedence."""
    found, earlier = {}, np.zeros_like(times)
    counted = np.zeros(len(events), np.bool_)
    for part, (names, _) in PARTS.items():
        counted |= events.is_a(*names)
        covered = Spans.union(events.start[counted], events.end[counted]).before(times)
        found[part], earlier = covered - earlier, covered
    return found


def _bar(axes: Axes, row: int, parts: dict[str, float]) -> None:
    total, left = sum(parts.values()), 0.0
    for part, value in parts.items():
        look: dict[str, Any] = {"color": COLORS[part], "edgecolor": "#999999", "linewidth": 0.4}
        axes.barh(row, value / total, left=left / total, height=0.62, **look)
        left += value
