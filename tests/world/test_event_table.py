"""Events are kept as packed rows: what goes in comes out, and takes little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.world.record import OUTCOMES, Events

times = st.floats(0, 1e9) | st.just(float("nan"))
whole = st.integers(-1, 2**63 - 1)
parties = st.integers(-1, 2**31 - 1)
kinds = st.sampled_from(["compute.embed", "upload", "latency.client-1→server", "transfer.ball"])
rows = st.tuples(times, times, parties, kinds, whole, parties, whole, whole, times, st.sampled_from(OUTCOMES))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(given_rows=st.lists(rows, max_size=20))
def test_rows_come_back_as_they_were_recorded(given_rows) -> None:
    events = Events()
    for row in given_rows:
        events.add(*row)
    assert len(events) == len(given_rows)
    words = list(events.kinds)
    found = [
        (r["start_s"], r["end_s"], r["party"], words[r["kind"]], r["round"], r["peer"], r["bytes"], r["index"],
         r["drawn_s"], OUTCOMES[r["outcome"]])
        for r in events.table
    ]  # fmt: skip
    for one, other in zip(found, given_rows, strict=True):
        assert all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
    assert words == list(dict.fromkeys(row[3] for row in given_rows))


def test_rows_can_still_be_added_after_the_table_was_read() -> None:
    events = Events()
    events.add(0.0, 1.0, 1, "upload", 0, 0, 0, 0, 1.0)
    assert events.table["end_s"].tolist() == [1.0]
    events.add(1.0, 3.0, 1, "upload", 1, 0, 0, 1, 2.0, "abandoned")
    assert events.table["end_s"].tolist() == [1.0, 3.0]
    assert [OUTCOMES[code] for code in events.table["outcome"]] == ["done", "abandoned"]


def test_an_event_takes_less_than_80_bytes() -> None:
    tracemalloc.start()
    events = Events()
    for k in range(20_000):
        events.add(0.5 * k, 0.5 * k + 0.1, k % 50, "transfer.embedding", k, 0, 1024, k, 0.1)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / len(events) < 80


def test_no_events_are_empty_columns() -> None:
    assert Events().table.shape == (0,)
    assert Events().table["party"].dtype == np.int32
