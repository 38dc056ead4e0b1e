"""Rules about draws, links and outages: how long activities last, and what cannot happen while a party is down.

The rules on links skip runs without facts about the network.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import pandas as pd

from vflsim.results.events import Spans
from vflsim.results.facts import NetworkFacts
from vflsim.results.store.pages import RunInfo
from vflsim.results.verify.rules import ROUNDING, Frames, Marks, Rule, are, begin, each, numbered, numbers, overlapping
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats

_SLACK = 1e-9
"""Relative tolerance: times are rounded, and a fair transfer ends with a tiny remainder."""

_LATE = 0.05
"""By how many seconds a real clock may be late with a transfer that never stood still."""


def _no_transfer_beats_its_links(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A transfer lasts at least 8 · bytes ÷ the highest rate of its slower link."""
    if info.network is None or not info.reproducible:  # real clocks are less exact
        return
    transfers = frames.of("transfer.")
    least, rounding = _least_seconds(transfers, info.network, info.participants)
    yield from each(transfers, transfers["end_s"] - transfers["start_s"] < least - rounding, "is faster than its links")


def _fifo_links_move_one_message_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The transfers of a party do not overlap, in either direction: those at the highest rate of their links.

    A slower one has moved at a lower rate, or stood aside meanwhile.
    """
    if info.network is None or info.network.kind != "fifo":
        return
    transfers = frames.of("transfer.")
    least, rounding = _least_seconds(transfers, info.network, info.participants)
    late = 0.0 if info.reproducible else _LATE
    lasted = transfers["end_s"] - transfers["start_s"]
    moved = transfers[(lasted > 0) & (lasted <= least + rounding + late)]
    for column, who, moving in (("party", "its sender", "sends"), ("peer", "its receiver", "receives")):
        broken = overlapping(moved, column)
        yield from each(broken, np.ones(len(broken)), f"moves while {who} still {moving} something else")


def _least_seconds(
    transfers: pd.DataFrame, network: NetworkFacts, participants: Iterable[int]
) -> tuple[Floats, Floats]:
    """Return the seconds that each transfer takes at the highest rate of its links, and how much rounding may change.

    Both have the shape (transfers,).
    """
    parties = {party_name(party): party for party in (SERVER, *participants)}

    def highest(column: str, direction: Literal["up", "down"]) -> Floats:
        names = transfers[column].cat
        known = network.rates(direction, [parties.get(name, -1) for name in names.categories])
        return np.array([*known, math.inf])[names.codes]

    size, end = numbers(transfers, "bytes", "end_s")
    least = 8 * size / np.minimum(highest("party", "up"), highest("peer", "down"))
    return least, _SLACK * least + 4 * np.spacing(end)


class Downtime:
    """The outages in ``events``, by party, in order."""

    def __init__(self, events: pd.DataFrame) -> None:
        outages = events[are(events, "kind", "outage")].sort_values("start_s", kind="stable")
        self.of = {str(party): rows for party, rows in outages.groupby("party", observed=True, sort=False)}
        self.most = max(map(len, self.of.values()), default=0)
        """Largest number of outages of a party."""

    def seconds(self, events: pd.DataFrame) -> Floats:
        """Return the seconds of each event during which its party was down, shape (events,)."""
        seconds = np.zeros(len(events))
        for party, outages in self.of.items():
            theirs = are(events, "party", party)
            down = Spans.union(*numbers(outages, "start_s", "end_s"))
            seconds[theirs] = down.between(*numbers(events[theirs], "start_s", "end_s"))
        return seconds

    def during(self, events: pd.DataFrame, who: str, since: str, *, ends: bool = False) -> Marks:
        """Mark events that overlap an outage of the party in column ``who``, or (with ``ends``) touch its ends.

        An event counts from the time in column ``since`` to its end. Shape (events,).
        """
        inside = np.zeros(len(events), bool)
        for party, outages in self.of.items():
            theirs = are(events, who, party)
            (start, end), (down, up) = numbers(events[theirs], since, "end_s"), numbers(outages, "start_s", "end_s")
            # the last outage that begins before the event ends
            last = np.searchsorted(down, end, side="right" if ends else "left") - 1
            inside[theirs] = (last >= 0) & ((start < up[last]) | (ends & (start == up[last])))
        return inside


def _draws_are_numbered_once(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Each index of a (party, kind) is drawn once; an upload lasts as long as its draw."""
    drawn = frames.events[frames.events["drawn_s"].notna()]
    again, indices = numbered(drawn)
    yield from each(drawn, again, "uses an index for the second time")
    yield from each(drawn, drawn["index"] < 0, "was drawn, but has no index")
    for series in indices.to_dict("records"):
        # Activations that find the client busy leave no event.
        if series["max"] >= series["count"] and not series["kind"].startswith("activation"):
            count = f"{series['count']} events, but the highest index is {series['max']}"
            yield f"{series['party']} {series['kind']}: {count}: some are missing"
    if info.reproducible:  # a real-time run uses the machine's clock
        outages = Downtime(frames.events)
        as_long = begin(drawn, "upload")
        if not outages.most:
            as_long |= begin(drawn, "latency") | begin(drawn, "share")
        uploads = drawn[as_long & are(drawn, "outcome", "done")]
        lasted = uploads["end_s"] - uploads["start_s"] - outages.seconds(uploads)  # an outage pauses the upload
        off = (lasted - uploads["drawn_s"]).abs() > ROUNDING * (1 + outages.most) * (1 + uploads["end_s"])
        yield from each(uploads, off, "did not last as long as was drawn")


def _messages_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's messages of a kind are numbered in the order of sending: none is missing or repeated."""
    transfers = frames.of("transfer.")
    twice, indices = numbered(transfers)
    yield from each(transfers, twice, "is listed twice")
    for series in indices.to_dict("records"):
        sent = series["max"] + 1
        if missing := max(0, sent - series["nunique"]):
            yield f"events: {series['party']} sent {sent} {series['kind']}, of which {missing} are missing"


def _outages_are_in_order(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's outages are numbered from 0 and do not overlap; only the last may be unfinished."""
    for rows in Downtime(frames.events).of.values():
        rules = {
            "is out of turn": rows["index"] != np.arange(len(rows)),
            "begins before the previous outage has ended": rows["start_s"] < rows["end_s"].shift(),
            "is unfinished, but not the last": ~are(rows, "outcome", "done") & (rows["index"] < len(rows) - 1),
        }
        for sentence, broken in rules.items():
            yield from each(rows, broken, sentence)


def _nothing_is_done_while_down(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party whose outages lose work neither acts nor receives during them."""
    if info.path == "live":  # each process says by its own clock when things really happened
        return
    events, outages = frames.events, Downtime(frames.events)
    if not outages.of:
        return
    crashing = [party_name(client) for client in info.crashing]
    activities = events[are(events, "party", *crashing) & ~are(events, "kind", "outage")]
    yield from each(activities, outages.during(activities, "party", "start_s"), "happens while its party is down")
    done = begin(events, "transfer.") & are(events, "outcome", "done")
    arrived = events[done & are(events, "peer", *crashing)]
    yield from each(arrived, outages.during(arrived, "peer", "end_s"), "arrives while its receiver is down")


def _what_is_lost_is_lost_in_an_outage(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A lost activity ends when its party goes down; a lost message ends while its sender or receiver is down."""
    if not info.reproducible:  # a real-time clock advances meanwhile
        return
    lost, outages = frames.events[are(frames.events, "outcome", "lost")], Downtime(frames.events)
    explained = outages.during(lost, "party", "end_s", ends=True) | outages.during(lost, "peer", "end_s", ends=True)
    yield from each(lost, ~explained, "was lost, but neither party was down")


LINK_RULES: tuple[Rule, ...] = (
    _draws_are_numbered_once,
    _messages_are_accounted_for,
    _no_transfer_beats_its_links,
    _fifo_links_move_one_message_at_a_time,
)
OUTAGE_RULES: tuple[Rule, ...] = (
    _outages_are_in_order,
    _nothing_is_done_while_down,
    _what_is_lost_is_lost_in_an_outage,
)
