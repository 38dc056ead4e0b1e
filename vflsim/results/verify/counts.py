"""Rules about counts and ages: events and rounds add up to those of the metrics, and to the clients that rounds use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.learners.staleness import ArrivalSteps
from vflsim.results.store.schema import SERVER, RunInfo
from vflsim.results.verify.frames import ROUNDING, SHOWN, Frames, Rule, each
from vflsim.streams import party_name

_STEP = "compute.client_step"
_NO_STEPS = {"embed", "first_fill", "answer", "predict", "share_data", "share_model", "coded_embed"}
"""Clients' computations of vflsim's own that are no update, beside those that are. Others' may be one or not."""
_MANY = 8
"""Kinds of others' computations of which all choices are looked at, at most."""
_Bounds = tuple[NDArray[np.int64], NDArray[np.int64]]


def _until(frames: Frames, ends: NDArray[Any], amounts: NDArray[Any] | int = 1, whole: bool = True) -> _Bounds:
    """Return the least and the most ``amounts`` that have ended until each row of metrics.

    What ends exactly at the time of a row may count on either side of it. If ``whole``, the last row of a finished run
    has all.
    """
    order = np.argsort(ends, kind="stable")
    added = np.concatenate([[0], np.broadcast_to(amounts, ends.shape)[order].cumsum()])
    rows = frames.metrics["time_s"]
    least, most = (added[np.searchsorted(ends[order], rows, side)] for side in ("left", "right"))
    if whole and len(rows) and not frames.cut:
        least[-1] = most[-1] = added[-1]
    return least, most


def _other_counts(frames: Frames, column: str, bounds: _Bounds, what: str) -> Iterator[str]:
    (least, most), counted, rows = bounds, frames.metrics[column], frames.metrics["time_s"]
    for row in np.flatnonzero((counted < least) | (counted > most))[:SHOWN]:
        span = f"{least[row]}" if least[row] == most[row] else f"{least[row]} to {most[row]}"
        yield f"metrics at {rows[row]} s: {column} is {counted[row]}, {what} add up to {span}"


def _bytes_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The transfers until a row of metrics add up to its bytes."""
    if frames.events is None:
        return
    transfers = frames.of("transfer.")
    party, peer = transfers.names("party"), transfers.names("peer")
    yield from each(transfers, peer.codes < 0, "has no receiver")
    sends, receives = party.are(SERVER), peer.are(SERVER)
    links = {"bytes_up": ~sends & receives, "bytes_down": sends & ~receives, "bytes_peer": ~sends & ~receives}
    for column, on_link in links.items():
        bounds = _until(frames, transfers["end_s"][on_link], transfers["bytes"][on_link])
        yield from _other_counts(frames, column, bounds, "its transfers")


def _rounds_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A row of metrics counts the rounds until then, and each ends with a computation of the server."""
    if frames.rounds is None:
        return
    yield from _other_counts(frames, "round", _until(frames, frames.rounds["end_s"]), "the rounds until then")
    if frames.events is None:
        return
    computes = frames.of("compute.")
    ends = computes["end_s"][computes.names("party").are(SERVER) & computes.names("outcome").are("done")]
    for row in np.flatnonzero(~np.isin(frames.rounds["end_s"], ends))[:SHOWN]:
        number, end = (frames.rounds[name][row] for name in ("round", "end_s"))
        yield f"rounds: round {number} ends at {end} s, when the server has completed nothing"


def _updates_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A row of metrics counts the client steps until then: computations of clients, all of a kind or none."""
    if frames.events is None or info.reference or info.path == "live":  # whose clients' steps leave no events in time
        return
    computes = frames.of("compute.")
    computes = computes.where(~computes.names("party").are(SERVER) & computes.names("outcome").are("done"))
    done = {
        kind: np.stack(_until(frames, computes["end_s"][own], whole=False)) for (kind,), own in computes.groups("kind")
    }
    kinds = [kind for kind in done if not (_STEP in done and kind.partition(".")[2] in _NO_STEPS)]
    counted, none = frames.metrics["updates"], np.zeros((2, len(frames.metrics)), np.int64)
    choices = chain.from_iterable(combinations(kinds, many) for many in range(len(kinds) + 1))
    sums = [sum((done[kind] for kind in some), none) for some in (choices if len(kinds) <= _MANY else ())]
    if sums and not any(((least <= counted) & (counted <= most)).all() for least, most in sums):
        least, most = done.get(_STEP, sums[-1])
        yield from _other_counts(frames, "updates", (least, most), "the clients' steps until then")


def _clients_have_sent_what_rounds_use(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Whoever is used, or fresh, for the k-th time has sent k messages that have arrived by the end of the round.

    Code from outside may step on a message again: there each has sent one, at least.
    """
    if frames.rounds is None or frames.events is None or info.reference or info.path == "live":
        return
    again = bool(info.installed) or any(path.endswith(".py") for path in info.inputs or {})
    transfers, ends = frames.of("transfer."), frames.rounds["end_s"]
    arrived = transfers.where(transfers.names("outcome").are("done"))
    sent = {party: np.sort(arrived["end_s"][places]) for (party,), places in arrived.groups("party")}
    for column in ("used", "fresh"):
        rows, clients = frames.rounds.lists(column)
        order = np.argsort(clients, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(clients[order])) + 1) if len(order) else ():
            name = party_name(int(clients[own[0]]))
            messages = np.searchsorted(sent.get(name, np.empty(0)), ends[rows[own]], side="right")
            needed = np.ones(len(own), int) if again else np.arange(1, len(own) + 1)
            for place in np.flatnonzero(messages < needed)[:1]:
                number, count = frames.rounds["round"][rows[own[place]]], messages[place]
                said = f"{column} has {name} {place + 1} times until then, and {count} of its messages had arrived"
                yield f"rounds: round {number}: {said}"


def _ages_add_up(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The ages of clients since the row before are those since each was ``fresh``."""
    if frames.rounds is None:
        return
    participants, rounds = np.array(sorted(info.participants)), frames.metrics["round"]
    rows, clients = frames.rounds.lists("fresh")
    steps = np.diff(rounds, prepend=0)
    if (steps < 0).any() or not (rounds <= len(frames.rounds)).all() or not np.isin(clients, participants).all():
        return  # which has a sentence of its own
    arrivals, places = ArrivalSteps(len(participants)), np.searchsorted(participants, clients)
    bounds = np.searchsorted(rows, np.concatenate([[0], rounds]))
    for row, count in enumerate(steps.tolist()):
        some = slice(bounds[row], bounds[row + 1])
        ages = arrivals.steps(int(rounds[row]) - count, count, rows[some], places[some])
        for column, expected in (("client_age_mean", ages.mean), ("client_age_max", ages.maximum)):
            given = float(frames.metrics[column][row])
            if not np.isclose(given, expected, rtol=ROUNDING, atol=0, equal_nan=True):
                when = frames.metrics["time_s"][row]
                yield f"metrics at {when} s: {column} is {given:g}, its rounds since the row before give {expected:g}"


COUNT_RULES: tuple[Rule, ...] = (
    _bytes_add_up,
    _rounds_add_up,
    _updates_add_up,
    _clients_have_sent_what_rounds_use,
    _ages_add_up,
)
