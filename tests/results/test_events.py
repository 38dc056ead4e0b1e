"""Sets of times against a brute-force clock that ticks in whole seconds."""

import numpy as np
from hypothesis import given, strategies as st

from vflsim.results.events import Spans, downtime

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def spans(intervals: list[tuple[int, int]]) -> Spans:
    pairs = np.array([(start, start + lasts) for start, lasts in intervals], dtype=float).reshape(-1, 2)
    return Spans.union(pairs[:, 0], pairs[:, 1])


def ticks(intervals: list[tuple[int, int]]) -> set[int]:
    return {second for start, lasts in intervals for second in range(start, start + lasts)}


def covered(of: Spans) -> set[int]:
    return {s for start, end in zip(of.starts, of.ends, strict=True) for s in range(int(start), int(end))}


@given(INTERVALS)
def test_a_union_covers_what_any_interval_covers(intervals: list[tuple[int, int]]) -> None:
    found = spans(intervals)
    assert covered(found) == ticks(intervals)
    assert (found.starts[1:] > found.ends[:-1]).all()
    assert (found.ends > found.starts).all()


@given(INTERVALS, st.lists(st.integers(-5, 60), min_size=1))
def test_before_counts_the_covered_seconds(intervals: list[tuple[int, int]], times: list[int]) -> None:
    expected = [len([second for second in ticks(intervals) if second < time]) for time in times]
    assert spans(intervals).before(np.array(times, dtype=float)).tolist() == expected


@given(INTERVALS, INTERVALS)
def test_minus_takes_the_others_times_away(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    assert covered(spans(some).minus(spans(others))) == ticks(some) - ticks(others)


def test_between_edges_time_is_shared_out() -> None:
    found = Spans.union(np.array([1.0, 4.0]), np.array([2.0, 8.0]))
    assert found.before(np.array([0.0, 1.5, 3.0, 6.0, 9.0])).tolist() == [0.0, 0.5, 1.0, 3.0, 5.0]


@given(INTERVALS, INTERVALS)
def test_joined_spans_cover_what_any_of_them_covers(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    assert covered(Spans.joined([spans(some), spans(others)])) == ticks(some) | ticks(others)


def test_a_party_is_down_in_its_own_outages_alone() -> None:
    down = downtime(np.array([2, 1, 2]), np.array([3.0, 0.0, 1.0]), np.array([4.0, 2.5, 2.0]))
    assert {party: covered(own) for party, own in down.items()} == {1: {0, 1}, 2: {1, 3}}
    assert down[2].between(np.array([0.0, 1.5]), np.array([5.0, 3.5])).tolist() == [2.0, 1.0]
