"""Time breakdown: activities on the critical path of rounds, and of clients."""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vflsim.plotting.selection import finished, length
from vflsim.plotting.style import Picture, columns_of, failures, frame, headline, legend, panels_of, picture
from vflsim.plotting.waits import DEADLINE, QUEUE, step_waits
from vflsim.results.events import Activities, Causes, Spans, activities
from vflsim.results.link_waits import LinkUse
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats

PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "out": (("outage",), "#B5484B"),
    "client computes": (("compute",), "#3B5B92"),
    "upload delay": (("upload",), "#F0B95B"),
    "sharing delay": (("share",), "#C9793B"),
    "transfer": (("transfer",), "#2A8C6A"),
    "latency": (("latency",), "#A9D3BE"),
    "queue of a link": ((QUEUE,), "#8A63A6"),
    "waits for activation": (("activation",), "#D8D8D8"),
}
"""Part -> its activities and colour; at the same time, an earlier part takes precedence."""
_PART = {name: part for part, (names, _) in PARTS.items() for name in names}
SERVER_STEP, TO_DEADLINE, BARRIER, WAITING = "server step", "deadline", "share barrier", "idle (waits for others)"
_REST = {SERVER_STEP: "#8AA5D6", TO_DEADLINE: "#E3A1B8", BARRIER: "#DCCFAE", WAITING: "#F3F3F3"}
COLORS = {**{name: color for name, (_, color) in PARTS.items()}, **_REST}
_WIDTH = 8.4
_EDGE: dict[str, Any] = {"edgecolor": "#999999", "linewidth": 0.4}
_BEFORE: dict[str, Any] = {"hatch": "/////", "edgecolor": "white", "linewidth": 0.4}


def time_breakdown(results: Results) -> Picture:
    """Split the mean round, and the average client's time, into activities; one bar a protocol, seeds pooled.

    The left panel shows the critical path (:mod:`vflsim.plotting.waits`): the activities of the parties waited
    for, from the round's start to its server step, then the step itself. If the path passes through messages between
    clients, the part before their arrival (the barrier) is hatched. A step that no message started waited for a
    deadline. The right panel shows the participants' activities over the whole run, on average; a client waits at a
    barrier if a message from another client ends its idle time. Idle is the rest: waiting for the server, and so for
    others or for a deadline.
    ``numbers``: ``rounds`` (protocol, part, seconds of the mean round, share, before: seconds before the barrier),
    ``clients`` (protocol, part, share), ``links`` (protocol, link, client, messages, seconds that they wait there for
    others, or lose by sharing). Raises NotRecordedError if events were not kept, or no round was completed.
    """
    rounds, clients, seconds, before = {}, {}, {}, {}
    links: list[tuple[Any, ...]] = []
    kinds: dict[str, None] = {}
    for name, runs in finished(results, "rounds", "events").items():
        parts = [_of_run(run) for run in runs]
        if count := sum(each.rounds for each in parts):
            rounds[name] = {part: sum(each.path[part] for each in parts) / count for part in COLORS}
            before[name] = {part: sum(each.before[part] for each in parts) / count for part in COLORS}
            seconds[name] = sum(rounds[name].values())
            clients[name] = {part: float(np.mean([each.clients[part] for each in parts])) for part in COLORS}
            kinds |= dict.fromkeys(kind for each in parts for kind in each.kinds)
            links += [(name, *wait) for each in parts for wait in each.waits]
    rounds = {name: parts for name, parts in rounds.items() if seconds[name] > 0}
    if not rounds:
        raise NotRecordedError("no round of these runs took any time", str(results.folder))
    numbers = {
        "rounds": frame(
            ("protocol", "part", "seconds", "share", "before"),
            [
                (name, part, value, value / seconds[name], before[name][part])
                for name, shares in rounds.items()
                for part, value in shares.items()
            ],
        ),
        "clients": frame(
            ("protocol", "part", "share"),
            [(name, part, value) for name in rounds for part, value in clients[name].items()],
        ),
        "links": frame(("protocol", "link", "client", "messages", "seconds"), links)
        .groupby(["protocol", "link", "client"], as_index=False, sort=False)
        .sum(),
    }
    columns = columns_of(2, _WIDTH, rounds)
    with picture(_WIDTH, 0.9 + (0.6 + 0.42 * len(rounds)) * (3 - columns), numbers) as figure:
        left, right = panels_of(figure, 2, columns)
        for row, name in enumerate(rounds):
            after = {part: value - before[name][part] for part, value in rounds[name].items()}
            reached = _bar(left, row, before[name], seconds[name], 0.0, _BEFORE)
            _bar(left, row, after, seconds[name], reached, _EDGE)
            _bar(right, row, clients[name], sum(clients[name].values()), 0.0, _EDGE)
        left.set_yticks(range(len(rounds)), [f"{name}\n{seconds[name]:.3g} s" for name in rounds])
        left.invert_yaxis()
        for axes, label in ((left, "share of the mean round"), (right, "share of the average client's time")):
            axes.set_xlim(0, 1)
            axes.set_xlabel(label)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
        headline(figure, results.name, f"critical path; below names: mean round{failures(results)}")
        shown = [part for part in COLORS if any(each[part] > 0 for side in (rounds, clients) for each in side.values())]
        handles = [Patch(facecolor=COLORS[part], **_EDGE) for part in shown]
        if any(sum(before[name].values()) > 0 for name in rounds):
            handles.append(Patch(facecolor="#777777", **_BEFORE))
            shown.append(f"before the barrier ({', '.join(kind.replace('_', ' ') for kind in kinds)})")
        legend(figure, handles, shown, columns=6 if len(shown) < 6 else 4)
    return figure


@final
@dataclass(frozen=True)
class _RunParts:
    """Completed rounds of a run, seconds of their critical paths by part (and before barriers), clients' mean shares.

    ``kinds`` are the kinds of the messages at barriers; ``waits`` are for links (none without facts about the network).
    """

    rounds: int
    path: dict[str, float]
    before: dict[str, float]
    clients: dict[str, float]
    kinds: tuple[str, ...]
    waits: list[tuple[str, int, int, float]]


def _of_run(run: StoredRun) -> _RunParts:
    events = activities(run)
    steps, end = step_waits(run, events), length(run)
    path, before = _by_part(steps.path.seconds), _by_part(steps.path.before)
    path[SERVER_STEP] += float((steps.end - steps.ready).sum())
    shares, participants, queues = dict.fromkeys(COLORS, 0.0), run.info.participants, _queues(events)
    peers = events.where(events.is_a("transfer") & events.done & (events.party != SERVER) & (events.peer != SERVER))
    for m, client_events in _by_client(events, participants):
        waits = queues.where(np.where(queues.party == SERVER, queues.peer, queues.party) == m)
        for part, spent in _parts(client_events, waits, end, peers.end[peers.peer == m]).items():
            shares[part] += spent / (end * len(participants)) if end > 0 else 0.0
    shares[WAITING] = max(1 - sum(shares.values()), 0.0)
    lost = [] if run.info.network is None else LinkUse(events, run.info.network).waits()
    return _RunParts(len(steps.start), path, before, shares, steps.path.kinds, lost)


def _by_part(seconds: dict[str, float]) -> dict[str, float]:
    parts = dict.fromkeys(COLORS, 0.0)
    for activity, spent in seconds.items():
        parts[TO_DEADLINE if activity == DEADLINE else _PART.get(activity, WAITING)] += spent
    return parts


def _queues(events: Activities) -> Activities:
    """Return the transfers, each from the end of its latency (or from its sending) until its bytes begin to move."""
    causes = Causes(events)
    transfers = np.flatnonzero(causes.events.is_a("transfer"))
    moves = causes.events.where(transfers)
    return replace(moves, start=causes.latency_ends(transfers), end=moves.start)


def _by_client(events: Activities, participants: tuple[int, ...]) -> list[tuple[int, Activities]]:
    """Group events by client: its own, and the server's messages to it."""
    client = np.where(events.party == SERVER, events.peer, events.party)
    order = np.argsort(client, kind="stable")
    first = np.searchsorted(client[order], participants, side="left")
    end = np.searchsorted(client[order], participants, side="right")
    return [(m, events.where(order[a:b])) for m, a, b in zip(participants, first, end, strict=True)]


def _parts(events: Activities, queues: Activities, end: float, peers: Floats) -> dict[str, float]:
    """Return a client's seconds until ``end`` spent on each part; the first of ``PARTS`` takes precedence.

    ``peers`` are the arrivals of messages from other clients.
    """
    seconds, earlier, spans = {}, 0.0, [(queues.start[:0], queues.end[:0])]
    for part, (names, _) in PARTS.items():
        some = events.is_a(*names)
        spans.append((queues.start, queues.end) if QUEUE in names else (events.start[some], events.end[some]))
        covered = Spans.union(*(np.concatenate(side) for side in zip(*spans, strict=True)))
        total = float(covered.before(np.array(end)))
        seconds[part], earlier = total - earlier, total
    idle_from, idle_to = np.append(0.0, covered.ends), np.append(covered.starts, end)
    seconds[BARRIER] = float((idle_to - idle_from)[np.isin(idle_to, peers) & (idle_to > idle_from)].sum())
    return seconds


def _bar(axes: Axes, row: int, parts: dict[str, float], total: float, left: float, edge: dict[str, Any]) -> float:
    """Draw parts of a bar from ``left`` on; return where they end."""
    for part, value in parts.items():
        axes.barh(row, value / total, left=left, height=0.62, facecolor=COLORS[part], **edge)
        left += value / total
    return left
