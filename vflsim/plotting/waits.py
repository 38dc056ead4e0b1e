"""The clients that each server step waited for, from the events, and the share of rounds that waited for each.

``rounds.used`` lists clients in client order, not by arrival. A step begins at the end of the instant in which its last
needed message arrives, or once the server has worked on those messages. The step waited for the clients among ``used``
with a message that arrived in that instant (for all of them if several arrive at once), and for clients that answered a
re-query then. A step waited for nobody if every message was there before, or if a deadline started it.

A message may itself have waited for others in its round: for shares of other clients, or for a query that the server
sent when another message arrived. :mod:`vflsim.plotting.critical_path` follows it back, message by message, to the
beginning of the round; the senders on that path were waited for *before*. If a client already had its peers' messages
when its own work ended, the client itself was the last that the round waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vflsim.plotting.critical_path import CriticalPath, critical_path
from vflsim.plotting.selection import finished
from vflsim.plotting.style import Picture, failures, frame, headline, legend, party_label, picture, remark, sides
from vflsim.plotting.theme import Style, protocol_styles
from vflsim.results.events import Activities, Causes, Ints, Mask, activities
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.results.store.run import RecordedRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats


@final
@dataclass(frozen=True, eq=False)
class StepWaits:
    """The rounds of one run, one array element each, and the clients that they waited for.

    Round k begins at ``start[k]``, its server step at ``step[k]``, and both end at ``end[k]`` (seconds). Its last
    message arrived at ``ready[k]``, which is before ``step[k]`` if the server first works on the messages. ``round``
    and ``client`` are ascending pairs: the round at position ``round[j]`` waited for client ``client[j]``. ``path``
    holds the critical paths.
    """

    start: Floats
    ready: Floats
    step: Floats
    end: Floats
    round: Ints
    client: Ints
    path: CriticalPath

    def last(self) -> Ints:
        """Return the client that each round waited for (of several the highest number); 0: nobody."""
        return _last(len(self.start), self.round, self.client)

    def shares(self, clients: npt.ArrayLike) -> Floats:
        """Return the share of rounds that waited for each of ``clients``; clients waited for together share a round."""
        several = np.bincount(self.round, minlength=len(self.start))
        return self._shares(self.client, 1 / several[self.round], clients)

    def shares_before(self, clients: npt.ArrayLike) -> Floats:
        """Return the same for clients waited for *before*; a round with several such waits counts each."""
        return self._shares(self.path.client, self.path.weight, clients)

    def _shares(self, client: Ints, weights: Floats, clients: npt.ArrayLike) -> Floats:
        wanted = np.asarray(clients, np.int64)
        sums = np.bincount(client, weights, minlength=int(np.max(wanted, initial=0)) + 1)
        return sums[wanted] / max(len(self.start), 1)


def step_waits(run: RecordedRun, events: Activities | None = None) -> StepWaits:
    """Find the clients that a run's rounds waited for; ``events`` saves reading them again.

    Raises NotRecordedError if rounds or events were not kept, or if rounds and server steps do not match.
    """
    events = activities(run) if events is None else events
    causes = Causes(events)
    events, rounds = causes.events, run.table("rounds")
    start, end = (rounds[name].to_numpy() for name in ("start_s", "end_s"))
    steps = np.flatnonzero(events.is_kind("compute.server_step") & (events.party == SERVER) & events.done)
    if len(steps) != len(start):
        raise NotRecordedError(f"{len(start)} rounds, but {len(steps)} server steps", str(run.folder))
    needed = named(run, "used")
    ready = events.start[steps]
    while True:
        at, client = _arrived(events, causes.arrivals, needed, ready, run.info.awaited_replies)
        waiting = np.ones(len(start), np.bool_)
        waiting[at] = False
        earlier = causes.server_work_before(ready, steps, start)
        if not (waiting & (earlier < ready)).any():
            break
        ready = np.where(waiting, earlier, ready)
    last = _last(len(start), at, client)
    return StepWaits(start, ready, events.start[steps], end, at, client, critical_path(causes, start, ready, last))


def named(run: RecordedRun, column: str) -> tuple[Ints, Ints]:
    """Return (position of the round, client) for every client in a column of lists: ``used``, ``missing``, ``fresh``.

    Raises NotRecordedError if rounds were not kept.
    """
    lists = run.table("rounds")[column].combine_chunks()
    clients = lists.flatten().to_numpy().astype(np.int64)
    counts = lists.value_lengths().fill_null(0).to_numpy()
    return np.repeat(np.arange(len(counts)), counts), clients


def _arrived(
    events: Activities, arrivals: Mask, needed: tuple[Ints, Ints], ready: Floats, replies: tuple[str, ...]
) -> tuple[Ints, Ints]:
    """Return ascending (round, client) pairs of needed messages that arrived at the server in the instant ``ready``."""
    messages = events.where(arrivals & (events.peer == SERVER))
    first = np.searchsorted(ready, messages.end, side="left")
    count = np.searchsorted(ready, messages.end, side="right") - first  # several steps may begin in one instant
    message = np.repeat(np.arange(len(messages)), count)
    at = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count) + first[message]
    client = messages.party[message]
    reply = messages.is_kind(*(f"transfer.{kind}" for kind in replies))[message]
    wanted = reply | np.isin(_pair(at, client), _pair(*needed))
    pairs = np.unique(_pair(at[wanted], client[wanted]))
    return pairs // _MOST, pairs % _MOST


def _last(rounds: int, at: Ints, client: Ints) -> Ints:
    last = np.zeros(rounds, np.int64)
    last[at] = client  # ascending: the highest one stays
    return last


_MOST = 2**31
"""Larger than any client's number."""


def _pair(position: Ints, client: Ints) -> Ints:
    return position * _MOST + client


_OTHERS = {-1: "deadline", 0: "none"}
"""Rounds that waited for no client: the server's deadline began the step, or the messages were already there."""
_NOBODY = "#9a9a9a"
_ABSENT = "#ececec"
_TICKS = 15
"""Most clients that are named on the axis."""
_LETTERS = 50
"""Letters of all names together above which the axis has numbers."""


def waited_for(results: Results) -> Picture:
    """Plot the share of rounds that waited for each client, one panel per protocol, seeds pooled.

    A step waited for a client if one of its messages arrived in the instant in which the step began
    (:mod:`vflsim.plotting.waits`); clients that arrive together share the round. Grey bars are the shares of
    rounds that waited for a deadline, or for nothing, because their messages were already there. If clients (or the
    server) of a protocol wait for messages before they send their own, a second panel shows these waits; a round with
    several of them counts each. ``numbers``: ``shares`` (protocol, stage: ``last`` or ``before``, client: 0 for nobody,
    -1 for a deadline, share of rounds). Raises NotRecordedError if events were not kept, or no message reached the
    server.
    """
    by_protocol = {name: _stages(runs) for name, runs in finished(results, "rounds", "events").items()}
    panels = [(name, stage) for name, stages in by_protocol.items() for stage in stages]
    if not panels:
        raise NotRecordedError("no message reached the server in any finished run", str(results.folder))
    shares = {(name, stage.name): stage.shares for name, stage in panels}
    clients = max(max(by_client) for by_client in shares.values())
    styles = protocol_styles(results)
    others = [one for one in _OTHERS if any(by_client.get(one, 0) > 0 for by_client in shares.values())]
    rows = [(*key, client, share) for key, by_client in shares.items() for client, share in by_client.items()]
    numbers = {"shares": frame(("protocol", "stage", "client", "share"), rows)}
    with picture(5.8, 1.1 + 0.82 * len(panels), numbers) as figure:
        drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, stage) in zip(drawn, panels, strict=True):
            _panel(axes, stage.shares, clients, others, styles[name])
            axes.set_title(name + (f": {stage.title}" if len(by_protocol[name]) > 1 else ""), loc="left")
        sides(figure, "share of rounds")
        headline(figure)
        drawn[-1].set_xlabel("client")
        remark(drawn[0], f"{results.name}, all seeds together{failures(results)}")
        handles, labels = [Patch(facecolor="#666666")], ["client waited for"]
        if others:
            handles.append(Patch(facecolor=_NOBODY, hatch="////", edgecolor="white"))
            labels.append("no client (a deadline, or none: messages already there)")
        if any(set(range(1, clients + 1)) - by_client.keys() for by_client in shares.values()):
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
    if not any((each.is_a("transfer") & (each.peer == SERVER)).any() for each in events):
        return []
    steps = [step_waits(*each) for each in zip(runs, events, strict=True)]
    rounds = sum(len(waits.start) for waits in steps)
    if not rounds:
        return []
    clients = sorted({client for run in runs for client in run.info.participants})
    stages = [
        _WaitedShares("last", "the message that lets the step begin", _pooled(steps, StepWaits.shares, clients, rounds))
    ]
    nobody = [np.setdiff1d(np.arange(len(waits.start)), waits.round) for waits in steps]
    late = sum(int((waits.ready > waits.start)[none].sum()) for waits, none in zip(steps, nobody, strict=True))
    stages[0].shares[-1] = late / rounds
    stages[0].shares[0] = (sum(map(len, nobody)) - late) / rounds
    if kinds := dict.fromkeys(kind for waits in steps for kind in waits.path.kinds):
        title = f"before that ({', '.join(kind.replace('_', ' ') for kind in kinds)})"
        stages.append(_WaitedShares("before", title, _pooled(steps, StepWaits.shares_before, clients, rounds)))
        stages[1].shares[0] = sum(len(waits.start) - len(np.unique(waits.path.round)) for waits in steps) / rounds
    return stages


def _pooled(
    steps: list[StepWaits], shares: Callable[[StepWaits, list[int]], Floats], clients: list[int], rounds: int
) -> dict[int, float]:
    total = np.sum([shares(waits, clients) * len(waits.start) for waits in steps], axis=0) / rounds
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
    names = [party_label(f"client {number}").removeprefix("client ") for number in ticks]
    labels = names if sum(map(len, names)) <= _LETTERS else [*map(str, ticks)]
    axes.set_xticks([*ticks, *places], [*labels, *(_OTHERS[one] for one in others)])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
