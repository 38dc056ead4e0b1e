"""Figures of single clients: which of them rounds waited for, and how old their embeddings are at server steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from vflsim.plotting import closed_forms as closed
from vflsim.plotting.looks import Style, protocol_styles
from vflsim.plotting.selection import Place, Window, finished
from vflsim.plotting.style import (
    Picture,
    failures,
    frame,
    headline,
    legend,
    party_label,
    picture,
    remark,
    sides,
    stacked,
)
from vflsim.plotting.waits import StepWaits, named, step_waits
from vflsim.results.events import Ints, activities
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import PURE

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


def staleness(results: Results, start: Place = None, end: Place = None) -> Picture:
    """Plot the share of (server step, client) pairs by client age, seeds pooled, with the closed form if there is one.

    Client age: server steps since the server last received an embedding of the client; 0 if this step did
    (``rounds.fresh``). Before its first embedding, a client's age counts from one step before the first. ``start`` and
    ``end`` limit the axis of ages. ``numbers``: ``ages`` (protocol, age, share), ``means`` (protocol, mean),
    ``closed_form`` (protocol, age, share). Raises NotRecordedError if rounds were not kept, or if every step used every
    client.
    """
    window = Window.of(start, end, PURE)
    pooled = {name: _total([age_counts(run) for run in runs]) for name, runs in finished(results, "rounds").items()}
    counts = {name: ages for name, ages in pooled.items() if ages.sum()}
    stale = {name: ages / ages.sum() for name, ages in counts.items() if len(ages) > 1}
    if not stale:
        raise NotRecordedError("every step used every client: all ages are 0", str(results.folder))
    theory = {name: _closed_form(results, name, len(shares)) for name, shares in stale.items()}
    means = {name: float(np.dot(np.arange(len(ages)), ages) / ages.sum()) for name, ages in counts.items()}
    numbers = {
        "ages": stacked({name: _by_age(ages / ages.sum()) for name, ages in counts.items()}),
        "means": frame(("protocol", "mean"), [*means.items()]),
        "closed_form": stacked({name: _by_age(shares) for name, shares in theory.items() if shares is not None}),
    }
    styles = protocol_styles(results)
    with picture(5.6, 3.6, numbers) as figure:
        axes = figure.add_subplot()
        handles: list[object] = [_histogram(axes, shares, styles[name]) for name, shares in stale.items()]
        labels = [f"{name} (mean {means[name]:.3g})" for name in stale]
        lowest = min(float(shares[shares > 0].min()) for shares in stale.values())
        for shares in theory.values():
            if shares is not None:
                axes.plot(np.flatnonzero(shares > 0), shares[shares > 0], **closed.LOOK, zorder=3)
        axes.set_yscale("log")
        axes.set_ylim(0.6 * lowest, 1.3)
        axes.set_xlim(-0.5, max(map(len, stale.values())) - 0.5)
        window.show(axes)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel("client age [server steps]")
        axes.set_ylabel("share of steps and clients")
        headline(axes, results.name)
        fresh = [name for name in counts if name not in stale]
        remark(axes, (f"always 0: {', '.join(fresh)}" if fresh else "all seeds together") + failures(results))
        if any(shares is not None for shares in theory.values()):
            handles += closed.handles([True]).values()
            labels.append(closed.LABEL)
        legend(figure, handles, labels, columns=3)
    return figure


def age_counts(run: StoredRun) -> Floats:
    """Count the (server step, client) pairs with age 0, 1, 2, …, over all participants and completed steps.

    Raises NotRecordedError if rounds were not kept.
    """
    return ages_between(*named(run, "fresh"), run.info.participants, run.table("rounds").num_rows)


def ages_between(step: Ints, client: Ints, clients: Sequence[int], steps: int) -> Floats:
    """Count the (server step, client) pairs with age 0, 1, 2, …; ``step`` and ``client`` list the arrivals."""
    participants = np.asarray(clients, dtype=np.int64)
    # Between two arrivals g steps apart, a client's age runs from 0 to g − 1: count gaps instead of ages. Before its
    # first arrival, age counts from step −1, whose own age 0 belongs to no step.
    step = np.concatenate([np.full(len(participants), -1), step, np.full(len(participants), steps)])
    client = np.concatenate([participants, client, participants])
    order = np.lexsort((step, client))
    step, client = step[order], client[order]
    gaps = np.diff(step)[client[1:] == client[:-1]]
    longer = np.bincount(gaps, minlength=1)[::-1].cumsum()[::-1]  # longer[g]: gaps of at least g steps
    counts = longer[1:].astype(np.float64)
    if len(counts):
        counts[0] -= len(participants)
    return counts


def _total(counts: list[Floats]) -> Floats:
    total = np.zeros(max(map(len, counts), default=0))
    for count in counts:
        total[: len(count)] += count
    return total


def _histogram(axes: Axes, shares: Floats, style: Style) -> Line2D:
    look = {"color": style.color, "linestyle": style.dash, "linewidth": 1.5}
    axes.stairs(shares, np.arange(len(shares) + 1) - 0.5, **look)
    return Line2D([], [], **look)


def _by_age(shares: Floats) -> dict[str, Any]:
    return {"age": np.arange(len(shares)), "share": shares}


def _closed_form(results: Results, protocol: str, ages: int) -> Floats | None:
    return closed.client_age(results, protocol, np.arange(ages, dtype=np.float64))
