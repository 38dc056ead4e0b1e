"""Rules about links: no transfer is faster than its links, and fifo links move one message at a time.

The rules skip runs without facts about the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from vflsim.results.facts.network import Rates
from vflsim.results.store.schema import RunInfo
from vflsim.results.verify.frames import Frames, Rule, each, overlapping
from vflsim.results.verify.rows import Names
from vflsim.streams import SERVER, party_name

_SLACK = 1e-9
"""Relative tolerance: times are rounded, and a fair transfer ends with a tiny remainder."""


def _no_transfer_beats_its_links(frames: Frames, info: RunInfo) -> Iterator[str]:
    """A transfer lasts at least 8 · bytes ÷ the highest rate of its slower link."""
    if frames.events is None or info.network is None or not info.reproducible:  # real clocks are less exact
        return
    transfers = frames.of("transfer.")
    parties = {party_name(party): party for party in (SERVER, *info.participants)}
    up = _highest(transfers.names("party"), info.network.up, parties)
    down = _highest(transfers.names("peer"), info.network.down, parties)
    least = 8 * transfers["bytes"] / np.minimum(up, down)
    lasted = transfers["end_s"] - transfers["start_s"]
    rounding = _SLACK * least + 4 * np.spacing(transfers["end_s"])
    yield from each(transfers, lasted < least - rounding, "is faster than its links")


def _fifo_links_move_one_message_at_a_time(frames: Frames, info: RunInfo) -> Iterator[str]:
    """The transfers of a party do not overlap, in either direction."""
    if frames.events is None or info.network is None or info.network.kind != "fifo":
        return
    transfers = frames.of("transfer.")
    moved = transfers.where(transfers["end_s"] > transfers["start_s"])
    for column, who, moving in (("party", "its sender", "sends"), ("peer", "its receiver", "receives")):
        overlaps = overlapping(moved, column)
        if not overlaps.any():
            continue
        broken = moved.where(overlaps)
        broken = broken.where(np.lexsort((broken["end_s"], broken["start_s"])))
        yield from each(broken, np.ones(len(broken)), f"moves while {who} still {moving} something else")


LINK_RULES: tuple[Rule, ...] = (_no_transfer_beats_its_links, _fifo_links_move_one_message_at_a_time)


def _highest(names: Names, rates: Rates, parties: Mapping[str, int]) -> NDArray[np.float64]:
    """Return the highest rate of each named party's link, in bit/s; ``rates`` may be those of any number of parties."""

    def of(party: int) -> float:
        return next((rate for first, last, rate in rates if first <= party <= last), math.inf)

    of_code = np.array([*(of(parties.get(name, -1)) for name in names.known), math.inf], np.float64)
    return of_code[names.codes]
