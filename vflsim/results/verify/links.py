"""Rules about links and outages: how fast transfers may be, and what cannot happen while a party is down.

The rules skip runs without facts about the network.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from vflsim.results.events import Spans
from vflsim.results.facts import NetworkFacts, Rates
from vflsim.results.store.pages import RunInfo
from vflsim.results.verify.frames import Frames, Names, Rows, Rule, each, overlapping
from vflsim.streams import SERVER, party_name

_SLACK = 1e-9
"""Relative tolerance: times are rounded, and a fair transfer ends with a tiny remainder."""

_LATE = 0.05
"""By how many seconds a real clock may be late with a transfer that never stood still."""


def _no_transfer_beats_its_links(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A transfer lasts at least 8 · bytes ÷ the highest rate of its slower link."""
    if frames.events is None or info.network is None or not info.reproducible:  # real clocks are less exact
        return
    transfers = frames.of("transfer.")
    least, rounding = _least_seconds(transfers, info.network, info.participants)
    yield from each(transfers, _lasted(transfers) < least - rounding, "is faster than its links")


def _fifo_links_move_one_message_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The transfers of a party do not overlap, in either direction: those at the highest rate of their links.

    A slower one has moved at a lower rate, or stood aside meanwhile.
    """
    if frames.events is None or info.network is None or info.network.kind != "fifo":
        return
    transfers = frames.of("transfer.")
    least, rounding = _least_seconds(transfers, info.network, info.participants)
    late = 0.0 if info.reproducible else _LATE
    moved = transfers.where((_lasted(transfers) > 0) & (_lasted(transfers) <= least + rounding + late))
    for column, who, moving in (("party", "its sender", "sends"), ("peer", "its receiver", "receives")):
        overlaps = overlapping(moved, column)
        if not overlaps.any():
            continue
        broken = moved.where(overlaps)
        broken = broken.where(np.lexsort((broken["end_s"], broken["start_s"])))
        yield from each(broken, np.ones(len(broken)), f"moves while {who} still {moving} something else")


LINK_RULES: tuple[Rule, ...] = (_no_transfer_beats_its_links, _fifo_links_move_one_message_at_a_time)


def _lasted(transfers: Rows) -> NDArray[np.float64]:
    lasted: NDArray[np.float64] = transfers["end_s"] - transfers["start_s"]
    return lasted


def _least_seconds(
    transfers: Rows, network: NetworkFacts, participants: Iterable[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds that each transfer takes at the highest rate of its links, and how much rounding may change.

    Both have the shape (transfers,).
    """
    parties = {party_name(party): party for party in (SERVER, *participants)}
    up = _highest(transfers.names("party"), network.up, parties)
    down = _highest(transfers.names("peer"), network.down, parties)
    least = 8 * transfers["bytes"] / np.minimum(up, down)
    return least, _SLACK * least + 4 * np.spacing(transfers["end_s"])


def _highest(names: Names, rates: Rates, parties: Mapping[str, int]) -> NDArray[np.float64]:
    """Return the highest rate of each named party's link, in bit/s; ``rates`` may be those of any number of parties."""

    def of(party: int) -> float:
        return next((rate for first, last, rate in rates if first <= party <= last), math.inf)

    of_code = np.array([*(of(parties.get(name, -1)) for name in names.known), math.inf], np.float64)
    return of_code[names.codes]


class Downtime:
    """The outages in ``events``, by party, in order."""

    def __init__(self, events: Rows) -> None:
        self.of: dict[str, Rows] = {}
        down = events.names("kind").are("outage")
        if down.any():
            outages = events.where(down)
            outages = outages.where(np.argsort(outages["start_s"], kind="stable"))
            self.of = {party: outages.where(rows) for (party,), rows in outages.groups("party")}
        self.most = max(map(len, self.of.values()), default=0)
        """Largest number of outages of a party."""

    def seconds(self, events: Rows) -> NDArray[np.float64]:
        """Return the seconds of each event during which its party was down, shape (events,)."""
        seconds = np.zeros(len(events))
        for party, outages in self.of.items():
            theirs = events.names("party").are(party)
            down = Spans.union(outages["start_s"], outages["end_s"])
            seconds[theirs] = down.between(events["start_s"][theirs], events["end_s"][theirs])
        return seconds

    def during(self, events: Rows, who: str, since: str, *, ends: bool = False) -> NDArray[np.bool_]:
        """Mark events that overlap an outage of the party in column ``who``, or (with ``ends``) touch its ends.

        An event counts from the time in column ``since`` to its end. Shape (events,).
        """
        inside = np.zeros(len(events), bool)
        for party, outages in self.of.items():
            theirs = events.names(who).are(party)
            start, end = (events[name][theirs] for name in (since, "end_s"))
            down, up = outages["start_s"], outages["end_s"]
            last = (
                np.searchsorted(down, end, side="right" if ends else "left") - 1
            )  # the last outage that begins before the event ends
            inside[theirs] = (last >= 0) & ((start < up[last]) | (ends & (start == up[last])))
        return inside


def _outages_are_in_order(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's outages are numbered from 0 and do not overlap; only the last may be unfinished."""
    if frames.events is None:
        return
    for rows in Downtime(frames.events).of.values():
        before = np.concatenate([[-np.inf], rows["end_s"][:-1]])
        rules = {
            "is out of turn": rows["index"] != np.arange(len(rows)),
            "begins before the previous outage has ended": rows["start_s"] < before,
            "is unfinished, but not the last": ~rows.names("outcome").are("done") & (rows["index"] < len(rows) - 1),
        }
        for sentence, broken in rules.items():
            yield from each(rows, broken, sentence)


def _nothing_is_done_while_down(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party whose outages lose work neither acts nor receives during them."""
    if frames.events is None or info.path == "live":  # each process says by its own clock when things really happened
        return
    events, outages = frames.events, Downtime(frames.events)
    if not outages.of:
        return
    crashing = [party_name(client) for client in info.crashing]
    activities = events.where(events.names("party").among(crashing) & ~events.names("kind").are("outage"))
    yield from each(activities, outages.during(activities, "party", "start_s"), "happens while its party is down")
    done = events.names("kind").begin("transfer.") & events.names("outcome").are("done")
    arrived = events.where(done & events.names("peer").among(crashing))
    yield from each(arrived, outages.during(arrived, "peer", "end_s"), "arrives while its receiver is down")


def _what_is_lost_is_lost_in_an_outage(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A lost activity ends when its party goes down; a lost message ends while its sender or receiver is down."""
    if frames.events is None or not info.reproducible:  # a real-time clock advances meanwhile
        return
    lost, outages = frames.events.where(frames.events.names("outcome").are("lost")), Downtime(frames.events)
    explained = outages.during(lost, "party", "end_s", ends=True) | outages.during(lost, "peer", "end_s", ends=True)
    yield from each(lost, ~explained, "was lost, but neither party was down")


OUTAGE_RULES: tuple[Rule, ...] = (
    _outages_are_in_order,
    _nothing_is_done_while_down,
    _what_is_lost_is_lost_in_an_outage,
)
