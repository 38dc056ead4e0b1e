"""Rules about activities, links, outages and rounds."""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from vflsim.results.facts import NetworkFacts
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.run import SHOWN
from vflsim.results.verify.frames import (
    ROUNDING,
    Frames,
    Rule,
    are,
    begin,
    crowded,
    each,
    falls,
    numbered,
    numbers,
    overlapping,
)
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES


def _times_are_sound(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Metrics run from 0 to the end; nothing lasts a negative time; what is done has its times."""
    times = frames.metrics["time_s"].to_numpy()
    if times[0] != 0 if len(times) else not frames.cut:
        yield "metrics: the first row is not at time 0"
    if np.isnan(times).any() or falls(times).any():
        yield "metrics: time_s does not ascend"
    events = frames.events
    start, end, drawn = numbers(events, "start_s", "end_s", "drawn_s")
    yield from each(events, np.isnan(start) | np.isnan(end), "has no time")
    yield from each(events, end < start, "has a negative duration")
    yield from each(events, drawn < 0, "has drawn a negative duration")
    yield from each(events, start < 0, "starts before the run")
    yield from each(events, end > frames.end, f"ends after the run, which ended at {frames.end} s")


def _outcomes_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Every activity has a known outcome; an unfinished one ends with the run."""
    events = frames.events
    yield from each(events, ~are(events, "outcome", *OUTCOMES), f"has an outcome that is none of {', '.join(OUTCOMES)}")
    end, size = numbers(events, "end_s", "bytes")
    unfinished = are(events, "outcome", "unfinished") & (end != frames.end)
    yield from each(events, unfinished, f"is unfinished, but the run continued until {frames.end} s")
    yield from each(events, size < 0, "sent a negative number of bytes")


def _parties_compute_one_thing_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's compute.* activities do not overlap, or no more of them than it has workers."""
    if info.workers is None:
        both = overlapping(frames.of("compute."), "party")
        for party, broken in both.groupby("party", observed=True, sort=False) if len(both) else ():
            yield from each(broken, np.ones(len(broken)), f"begins while {party} still computes something else")
        return
    for party, events in frames.of("compute.").groupby("party", observed=True, sort=False):
        workers = info.workers[party != party_name(SERVER)]
        ordered = events.sort_values(["start_s", "end_s"], kind="stable")
        marks = crowded(ordered["start_s"].to_numpy(), ordered["end_s"].to_numpy(), workers)
        yield from each(ordered, marks, f"begins while all {workers} workers of {party} compute")


def _staleness_is_bounded(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The age that ``max_staleness`` bounds never exceeds it."""
    if info.max_staleness is None:
        return
    column = f"{info.staleness_bounds}_max"
    ages, times = numbers(frames.metrics, column, "time_s")
    for row in np.flatnonzero(ages > info.max_staleness)[:SHOWN]:
        yield f"metrics at {times[row]} s: {column} is {ages[row]:g}, max_staleness is {info.max_staleness}"


def _rounds_are_contiguous(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Rounds are numbered without a gap; each starts at 0 or at the end of the previous round."""
    if not len(frames.rounds):
        return
    number, start, end = numbers(frames.rounds, "round", "start_s", "end_s")
    if start[0] != 0:
        yield f"rounds: the first starts at {start[0]} s instead of 0"
    if not end[-1] <= frames.end:
        yield f"rounds: the last ends at {end[-1]} s, after the run ({frames.end} s)"
    rules = {
        "does not follow the previous round": 1 + np.flatnonzero(np.diff(number) != 1),
        "does not start at the end of the previous round": 1 + np.flatnonzero(start[1:] != end[:-1]),
        "has a negative duration": np.flatnonzero(~(end >= start)),
    }
    for sentence, broken in rules.items():
        for row in broken[:SHOWN]:
            yield f"rounds: round {number[row]} ({start[row]} s to {end[row]} s) {sentence}"


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


def _draws_are_numbered_once(frames: Frames, info: RunInfo) -> Iterator[str]:
    """Each index of a (party, kind) is drawn once; an upload lasts as long as its draw."""
    drawn = frames.events[frames.events["drawn_s"].notna()]
    again, indices = numbered(drawn)
    yield from each(drawn, again, "uses an index for the second time")
    yield from each(drawn, drawn["index"] < 0, "was drawn, but has no index")
    for party, kind, count, _, last in indices:
        # Activations that find the client busy leave no event.
        if last >= count and not kind.startswith("activation"):
            yield f"{party} {kind}: {count} events, but the highest index is {last}: some are missing"
    if info.reproducible:  # a real-time run uses the machine's clock
        outages = frames.downtime
        most = max(map(len, outages.of.values()), default=0)
        as_long = begin(drawn, "upload")
        if not most:
            as_long |= begin(drawn, "latency") | begin(drawn, "share")
        uploads = drawn[as_long & are(drawn, "outcome", "done")]
        start, end, wanted = numbers(uploads, "start_s", "end_s", "drawn_s")
        lasted = end - start - outages.seconds(uploads)  # an outage pauses the upload
        off = np.abs(lasted - wanted) > ROUNDING * (1 + most) * (1 + end)
        yield from each(uploads, off, "did not last as long as was drawn")


def _messages_are_accounted_for(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's messages of a kind are numbered in the order of sending: none is missing or repeated."""
    transfers = frames.of("transfer.")
    twice, indices = numbered(transfers)
    yield from each(transfers, twice, "is listed twice")
    for party, kind, _, unique, last in indices:
        if missing := max(0, last + 1 - unique):
            yield f"events: {party} sent {last + 1} {kind}, of which {missing} are missing"


def _outages_are_in_order(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A party's outages are numbered from 0 and do not overlap; only the last may be unfinished."""
    for rows in frames.downtime.of.values():
        rules: dict[str, ArrayLike] = {
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
    events, outages = frames.events, frames.downtime
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
    marks, outages = are(frames.events, "outcome", "lost"), frames.downtime
    if not marks.any():
        return
    lost = frames.events[marks]
    explained = outages.during(lost, "party", "end_s", ends=True) | outages.during(lost, "peer", "end_s", ends=True)
    yield from each(lost, ~explained, "was lost, but neither party was down")


EVENT_RULES: tuple[Rule, ...] = (
    _times_are_sound,
    _outcomes_are_accounted_for,
    _parties_compute_one_thing_at_a_time,
    _draws_are_numbered_once,
    _messages_are_accounted_for,
    _no_transfer_beats_its_links,
    _fifo_links_move_one_message_at_a_time,
    _staleness_is_bounded,
    _rounds_are_contiguous,
    _outages_are_in_order,
    _nothing_is_done_while_down,
    _what_is_lost_is_lost_in_an_outage,
)
