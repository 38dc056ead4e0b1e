"""What counts a message, and how much has ended until a time: many spans at once, and one stretch after the other."""

import numpy as np
import pytest

from vflsim.books import BYTES, Counts, EndedAmounts, StepEnds, ended_until, way_of
from vflsim.recurrences.chunk import Moves


def test_bytes_count_by_who_sends_and_who_receives() -> None:
    counts = Counts()
    for sender, receiver, amount in ((3, 0, 1), (0, 2, 20), (2, 1, 300), (1, 0, 4000)):
        counts.add_bytes(sender, receiver, amount)
    assert [counts.counted()[name] for name in BYTES] == [4001, 20, 300]
    assert way_of(np.array([3, 0, 2]), np.array([0, 2, 1])).tolist() == [0, 1, 2]


def test_what_ends_at_a_time_counts_until_then() -> None:
    times, ends = np.array([2.0, 1.0, 3.0]), np.array([2.0, np.inf, 1.0, 2.0])
    assert ended_until(times, ends).tolist() == [3, 1, 3]
    assert ended_until(times, ends, np.array([10, 5, 1, 100])).tolist() == [111, 1, 111]
    assert ended_until(times, ends, side="left").tolist() == [1, 0, 3]


def test_steps_are_counted_up_to_the_instant_itself() -> None:
    steps = EndedAmounts[StepEnds]()
    steps.expect(StepEnds(np.array([[1.0, 3.0], [np.inf, 2.0]])))
    assert steps.until(0.5) == 0
    assert steps.ending(2.0) == 1
    assert steps.until(2.0) == 2
    assert [each.ends.tolist() for each in steps.waiting] == [[3.0]]
    steps.expect(StepEnds(np.array([[2.5]])))
    assert steps.until(9.0) == 4


@pytest.mark.parametrize("seed", range(20))
def test_stretches_add_up_to_what_all_spans_give_at_once(seed: int) -> None:
    """Many pieces, some of which never end and some at the very times, with and without copies of a message."""
    draws = np.random.default_rng(seed)
    moves, steps, told = EndedAmounts[Moves](), EndedAmounts[StepEnds](), list[tuple[np.ndarray, np.ndarray]]()
    for now in range(8):
        began = draws.integers(now, now + 3, (3, 2)).astype(float)
        ends = np.where(draws.random((3, 2)) < 0.1, np.inf, began + draws.integers(1, 6, (3, 2)))
        sizes, copies = draws.integers(0, 100, (3, 2)), draws.integers(1, 4, (3, 2)) if now % 2 else None
        moves.expect(Moves("up", began, ends, sizes, sizes, np.array(8.0), copies))
        steps.expect(StepEnds(ends))
        told.append((ends.ravel(), sizes.ravel()))
        all_ends, amounts = map(np.concatenate, zip(*told, strict=True))
        time = np.array([now + 0.5 if now % 3 else float(now)])
        assert moves.until(time[0]) == ended_until(time, all_ends, amounts)[0]
        assert steps.until(time[0]) == ended_until(time, all_ends)[0]
