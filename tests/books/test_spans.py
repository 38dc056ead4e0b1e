"""The spans that events tell."""

from __future__ import annotations

import math

from vflsim.books import COMPUTE, DOWN, FLOPS, RADIO, spans_of
from vflsim.world.record import Events


def test_events_tell_the_spans_of_those_who_take_part() -> None:
    events = Events()
    for kind, party, peer, size in (
        ("compute.embed", 1, -1, 0), ("upload", 1, 0, 0), ("latency.client-1→server", 1, 0, 0),
        ("transfer.embedding", 1, 0, 80), ("activation", 2, -1, 0), ("outage", 2, -1, 0), (FLOPS, 1, -1, 500),
        ("encoding", 3, -1, 0),
    ):  # fmt: skip
        events.add(float(len(events)), len(events) + 0.5, party, kind, 0, peer, size, 0, math.nan)
    spans = spans_of(events.table, list(events.kinds))
    rows = {*zip(*(each.tolist() for each in (spans.states, spans.parties, spans.began, spans.amounts)), strict=True)}
    assert rows == {
        (COMPUTE, 1, 0.0, 0), (RADIO, 1, 1.0, 0), (RADIO, 1, 3.0, 80), (RADIO, 0, 3.0, 80), (DOWN, 2, 5.0, 0),
        (COMPUTE, 1, 6.0, 500), (RADIO, 3, 7.0, 0),
    }  # fmt: skip
    assert (spans.ends - spans.began == 0.5).all()


def test_no_events_tell_no_spans() -> None:
    assert len(spans_of(Events().table, []).states) == 0
