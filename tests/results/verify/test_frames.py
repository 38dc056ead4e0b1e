"""Tables of runs as rules take them."""

import numpy as np
import pandas as pd
import pytest

from vflsim.results.store.schema import EVENTS
from vflsim.results.verify.frames import are, begin, crowded, each, falls, lists, numbered, overlapping

PEERS = ["b", None, "a", "b", "a", None]
FRAME = pd.DataFrame({"peer": pd.Categorical(PEERS), "kind": pd.Categorical([*"xxyxyy"]), "n": [5, 1, 4, 2, 3, 0]})
LISTS = [[1, 2], [], [3], [4, 5], []]
NOTHING: pd.DataFrame = EVENTS.empty_table().to_pandas()


def test_names_are_matched_and_null_never_is() -> None:
    assert are(FRAME, "peer", "b").tolist() == [name == "b" for name in PEERS]
    assert are(FRAME, "peer", "a", "c").tolist() == [name == "a" for name in PEERS]
    assert begin(FRAME.assign(kind=FRAME["peer"]), "").tolist() == [name is not None for name in PEERS]


def test_lists_are_flattened_with_their_rows() -> None:
    frame = pd.DataFrame({"clients": [np.array(each, np.int32) for each in LISTS]})
    places, values = lists(frame, "clients")
    assert [*zip(places.tolist(), values.tolist(), strict=True)] == [(0, 1), (0, 2), (2, 3), (3, 4), (3, 5)]
    assert [each.tolist() for each in lists(frame[:0], "clients")] == [[], []]


def test_an_empty_table_breaks_nothing() -> None:
    assert begin(NOTHING, "transfer.").tolist() == are(NOTHING, "party", "server").tolist() == []
    again, indices = numbered(NOTHING)
    assert len(again) == len(indices) == len(overlapping(NOTHING, "party")) == 0
    assert [*each(NOTHING, [], "is broken")] == []


def test_overlaps_are_those_with_any_earlier_event_of_the_party() -> None:
    spans = [("a", 0, 9), ("b", 1, 2), ("a", 1, 2), ("a", 3, 4), ("b", 2, 3), (None, 0, 9), (None, 1, 9), ("a", 9, 10)]
    events = pd.DataFrame(spans, columns=["peer", "start_s", "end_s"]).astype({"peer": "category"})
    assert overlapping(events, "peer").index.tolist() == [2, 3]


@pytest.mark.parametrize(("values", "marks"), [([], []), ([2], [0]), ([1, 1, 0, 5, 4], [0, 0, 1, 0, 1])])
def test_falls_are_marked_where_they_end(values: list[float], marks: list[int]) -> None:
    assert falls(values).tolist() == marks


def test_a_span_is_crowded_while_as_many_earlier_ones_go_on() -> None:
    starts, ends = np.array([0.0, 0, 1, 2, 2, 3]), np.array([2.0, 3, 1, 4, 5, 4])
    assert crowded(starts, ends, 1).tolist() == [False, True, True, True, True, True]
    assert crowded(starts, ends, 2).tolist() == [False, False, True, False, True, True]
    assert not crowded(starts, ends, 4).any()
