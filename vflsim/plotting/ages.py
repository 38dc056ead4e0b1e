"""Staleness: ages of the clients' latest embeddings at the server steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from vflsim.plotting import closed_forms as closed
from vflsim.plotting.selection import Place, Window, finished
from vflsim.plotting.style import Picture, failures, frame, headline, legend, picture, remark, stacked
from vflsim.plotting.theme import Style, protocol_styles
from vflsim.plotting.waits import named
from vflsim.results.events import Ints
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import PURE


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
