"""Batches within segments: the same places of every segment, padding marked."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from vflsim.learning.optimizers import Sgd
from vflsim.learning.training import Training
from vflsim.protocols.fedvs.plan import SegmentedBatch, SegmentedBatches


def sequence(rows: int, segments: int, batch: int | str, seed: int = 0, **more: Any) -> SegmentedBatches:
    training = Training(batch=batch, client_optimizer=Sgd(lr=1), server_optimizer=Sgd(lr=1), **more)
    return SegmentedBatches(rows, segments, training, seed)


def epoch(batches: SegmentedBatches, number: int) -> list[SegmentedBatch]:
    found = [batches.batch(number * batches.per_epoch + k) for k in range(batches.per_epoch)]
    assert all(isinstance(each, SegmentedBatch) for each in found)
    return found  # type: ignore[return-value]


@given(st.integers(1, 12), st.integers(0, 60), st.integers(1, 9), st.integers(0, 3))
def test_every_training_row_comes_once_an_epoch_and_every_place_in_all_segments(
    segments: int, more: int, places: int, seed: int
) -> None:
    rows = segments + more
    fits = segments * places <= rows
    batches = sequence(rows, segments, segments * places if fits else "all", seed)
    height = -(-rows // segments)
    places = places if fits else height
    assert batches.segment_rows == height
    for number in range(2):
        found = epoch(batches, number)
        assert sorted(np.concatenate([each.ids for each in found]).tolist()) == list(range(rows))
        for each in found:
            stack = each.rows.reshape(segments, -1)
            assert (stack == each.positions + height * np.arange(segments)[:, None]).all()
            assert each.real.tolist() == (each.rows < rows).tolist()
            assert each.ids.tolist() == each.rows[each.real].tolist()
            assert len(each.positions) <= places


def test_the_permutation_is_new_every_epoch_and_follows_from_the_seed() -> None:
    one, other = sequence(100, 5, 20), sequence(100, 5, 20, seed=1)
    assert [b.ids.tolist() for b in epoch(one, 0)] != [b.ids.tolist() for b in epoch(one, 1)]
    assert [b.ids.tolist() for b in epoch(one, 0)] != [b.ids.tolist() for b in epoch(other, 0)]
    again = sequence(100, 5, 20)
    assert again.batch(7).ids.tolist() == one.batch(7).ids.tolist()


def test_the_last_batch_may_be_dropped() -> None:
    kept, dropped = sequence(100, 5, 30), sequence(100, 5, 30, last_batch="drop")
    assert [len(b.positions) for b in epoch(kept, 0)] == [6, 6, 6, 2]
    assert [len(b.positions) for b in epoch(dropped, 0)] == [6, 6, 6]


def test_a_batch_that_segments_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a batch of 20 rows .* K = 3 segments; allowed: a multiple of 3, such as 21"):
        sequence(100, 3, 20)
    with pytest.raises(ValueError, match="4 training rows cannot be cut into K = 5 segments"):
        sequence(4, 5, 20)


def test_a_batch_larger_than_the_data_is_refused_though_padding_would_fill_it() -> None:
    with pytest.raises(ValueError, match=r"a batch of 12 rows .* 10 training rows; allowed: 1 to 10.*`batch: all`"):
        sequence(10, 4, 12)


@pytest.mark.parametrize(("rows", "segments", "places"), [(12, 4, 3), (10, 4, 3), (10, 1, 10)])
def test_a_full_batch_has_every_place_of_every_segment(rows: int, segments: int, places: int) -> None:
    (batch,) = epoch(sequence(rows, segments, "all"), 0)
    assert len(batch.positions) == places
    assert sorted(batch.ids.tolist()) == list(range(rows))


def test_what_is_in_a_batch_cannot_be_changed() -> None:
    batch = epoch(sequence(10, 3, 6), 0)[0]
    for array in (batch.ids, batch.rows, batch.real, batch.positions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("rows", "segments", "batch"), [(81, 5, 20), (80, 5, 20), (10, 4, 8), (83, 6, "all")])
@pytest.mark.parametrize("how", [{}, {"last_batch": "drop"}, {"sampling": "uniform"}])
def test_every_batch_has_one_of_the_sizes(rows: int, segments: int, batch: int | str, how: dict[str, Any]) -> None:
    batches = sequence(rows, segments, batch, **how)
    numbers, sizes = np.arange(5 * batches.per_epoch), batches.sizes()
    for number, size in zip(numbers.tolist(), batches.sizes_of(numbers).tolist(), strict=True):
        one = batches.batch(number)
        assert isinstance(one, SegmentedBatch)
        assert (len(one.positions), len(one)) == (len(sizes[size].positions), len(sizes[size]))  # type: ignore[attr-defined]
