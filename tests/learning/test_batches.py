"""Training settings, and the batches that follow from them."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import binomtest, chisquare

from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.optimizers import Adam, Sgd
from vflsim.learning.tasks import Auto, CrossEntropy
from vflsim.learning.training import Dropout, Training, TrainingOverride
from vflsim.streams import SHARED, generator

ROWS = 50


def sequence(rows: int = ROWS, seed: int = 0, party: int = 1, **training: Any) -> BatchSequence:
    settings = {"batch": 8, "client_optimizer": Sgd(lr=1), "server_optimizer": Sgd(lr=1), **training}
    return BatchSequence(rows, Training(**settings), seed, party)


def epoch(batches: BatchSequence, number: int) -> list[Batch]:
    return [batches.batch(number * batches.per_epoch + k) for k in range(batches.per_epoch)]


def listed(batches: BatchSequence, count: int = 30) -> list[list[int]]:
    return [batches.batch(k).ids.tolist() for k in range(count)]


@pytest.mark.parametrize("batch", [1, 7, 8, 10, 49, 50, "all"])
@pytest.mark.parametrize("mode", ["shared", "own"])
def test_every_row_comes_once_per_epoch(batch: int | str, mode: str) -> None:
    batches = sequence(batch=batch, batches=mode)
    for number in range(3):
        rows = np.concatenate([b.ids for b in epoch(batches, number)])
        assert sorted(rows.tolist()) == list(range(ROWS))


@pytest.mark.parametrize(
    ("batch", "last_batch", "sizes"),
    [
        (8, "keep", [8] * 6 + [2]),
        (8, "drop", [8] * 6),
        (10, "keep", [10] * 5),
        (10, "drop", [10] * 5),
        (49, "keep", [49, 1]),
        (49, "drop", [49]),
        (50, "drop", [50]),
        ("all", "keep", [50]),
        ("all", "drop", [50]),
        (1, "keep", [1] * 50),
    ],
)
def test_the_last_partial_batch_is_kept_or_dropped(batch: int | str, last_batch: str, sizes: list[int]) -> None:
    batches = sequence(batch=batch, last_batch=last_batch)
    assert batches.per_epoch == len(sizes)
    assert batches.smallest == min(sizes)
    for number in range(2):
        drawn = epoch(batches, number)
        assert [len(b) for b in drawn] == sizes
        assert [batches.length(b.index) for b in drawn] == sizes


def test_dropped_rows_differ_between_epochs() -> None:
    batches = sequence(last_batch="drop")
    seen = [frozenset(np.concatenate([b.ids for b in epoch(batches, e)]).tolist()) for e in range(5)]
    assert all(len(rows) == 48 for rows in seen)
    assert len(set(seen)) > 1


def test_random_access_equals_walking() -> None:
    walked = listed(sequence(), 100)
    jumping = sequence()
    order = np.random.default_rng(4).permutation(100).tolist()
    assert {k: jumping.batch(k).ids.tolist() for k in order} == dict(enumerate(walked))


def test_far_batches_cost_nothing_before_them() -> None:
    far = sequence().batch(10**12)
    assert far.ids.tolist() == sequence().batch(10**12).ids.tolist()


def test_a_batch_stays_the_same_however_often_it_is_asked_for() -> None:
    batches = sequence()
    first = batches.batch(3)
    for k in range(100):
        batches.batch(k)
    assert batches.batch(3) == first
    assert np.array_equal(batches.batch(3).ids, first.ids)


def test_epochs_differ() -> None:
    batches = sequence()
    orders = [np.concatenate([b.ids for b in epoch(batches, e)]) for e in range(4)]
    assert all(not np.array_equal(a, b) for a, b in pairwise(orders))


def test_shared_batches_are_the_same_for_all_parties() -> None:
    assert listed(sequence(party=0)) == listed(sequence(party=1)) == listed(sequence(party=7))
    assert sequence(party=3).batch(2) == sequence(party=4).batch(2)
    assert sequence(party=3).batch(2).origin == SHARED


def test_own_batches_belong_to_a_client() -> None:
    one, two = (sequence(party=party, batches="own") for party in (1, 2))
    assert listed(one) == listed(sequence(party=1, batches="own"))
    assert listed(one) != listed(two)
    assert listed(one) != listed(sequence())
    assert (one.batch(0).origin, two.batch(0).origin) == (1, 2)
    assert one.batch(0) != two.batch(0)


def test_seeds_differ() -> None:
    assert listed(sequence(seed=0)) != listed(sequence(seed=1))


def test_the_permutation_is_that_of_the_documented_stream() -> None:
    shared, own = sequence(), sequence(party=5, batches="own")
    for number in (0, 3):
        for batches, party in ((shared, SHARED), (own, 5)):
            rows = np.concatenate([b.ids for b in epoch(batches, number)])
            assert np.array_equal(rows, generator(0, party, f"batches/{number}").permutation(ROWS))


def test_the_order_of_rows_does_not_depend_on_the_batch_size() -> None:
    small, large = (np.concatenate([b.ids for b in epoch(sequence(batch=b), 2)]) for b in (4, 25))
    assert np.array_equal(small, large)


def test_first_positions_are_uniform() -> None:
    counts = np.zeros(10, dtype=int)
    batches = sequence(rows=10, batch=10)
    for k in range(5000):
        counts[batches.batch(k).ids[0]] += 1
    # χ² with 9 degrees of freedom: 27.9 is its 99.9 % quantile.
    assert ((counts - 500) ** 2 / 500).sum() < 27.9


def test_global_generators_are_untouched() -> None:
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    listed(sequence())
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(legacy, np.random.get_state()[1])


def test_ids_are_int64_and_cannot_be_written() -> None:
    ids = sequence().batch(0).ids
    assert ids.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 3


def test_a_batch_indexes_tensors() -> None:
    batch = sequence().batch(6)
    index = batch.tensor()
    assert (index.dtype, len(batch)) == (torch.int64, 2)
    assert torch.arange(ROWS)[index].tolist() == batch.ids.tolist()
    assert batch.tensor() is index  # made once


def test_batches_are_equal_by_their_place_in_a_sequence() -> None:
    ids = np.arange(3)
    assert Batch(1, ids, 2) == Batch(1, ids[:1], 2)
    assert hash(Batch(1, ids, 2)) == hash(Batch(1, ids[:1], 2))
    assert len({Batch(1, ids, 2), Batch(1, ids, 3), Batch(2, ids, 2)}) == 3


@pytest.mark.parametrize("last_batch", ["keep", "drop"])
def test_a_batch_larger_than_the_data_is_refused(last_batch: str) -> None:
    with pytest.raises(ValueError, match=r"a batch of 51 rows .* 50 training rows; allowed: 1 to 50.*`batch: all`"):
        sequence(batch=51, last_batch=last_batch)


def test_what_gives_no_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        sequence(rows=0)
    with pytest.raises(ValueError, match="numbered from 0"):
        sequence().batch(-1)


@pytest.mark.parametrize("last_batch", ["keep", "drop"])
def test_uniform_batches_are_full_samples_without_replacement_each_drawn_anew(last_batch: str) -> None:
    batches = sequence(sampling="uniform", last_batch=last_batch)
    assert batches.per_epoch == sequence(last_batch=last_batch).per_epoch
    assert batches.smallest == batches.length(batches.per_epoch - 1) == 8
    drawn = [batches.batch(k) for k in range(60)]
    assert [batch.index for batch in drawn] == list(range(60))
    assert all(len(batch) == len(set(batch.ids.tolist())) == 8 for batch in drawn)
    assert any(set(one.ids.tolist()) & set(other.ids.tolist()) for one, other in pairwise(epoch(batches, 0)))
    again = sequence(sampling="uniform", last_batch=last_batch)
    assert [again.batch(k).ids.tolist() for k in (59, 3)] == [drawn[k].ids.tolist() for k in (59, 3)]
    assert listed(sequence(sampling="uniform", batches="own", party=2)) != listed(
        sequence(sampling="uniform", batches="own", party=1)
    )


def test_pairs_of_rows_meet_in_uniform_batches_as_often_as_chance_says() -> None:
    """Inclusions of rows, and of pairs of rows, in 4,000 samples of 3 of 6: chi-squared, one failure in a thousand."""
    batches = sequence(rows=6, batch=3, sampling="uniform")
    samples = [tuple(sorted(batches.batch(k).ids.tolist())) for k in range(4000)]
    subsets = list(combinations(range(6), 3))
    found = np.array([samples.count(subset) for subset in subsets])
    assert chisquare(found).pvalue > 1e-3
    # Neighbouring batches are independent: the next one is the same as often as any other.
    same = sum(one == other for one, other in pairwise(samples))
    assert binomtest(same, 3999, 1 / len(subsets)).pvalue > 1e-3


BASE = Training(batch=64, client_optimizer=Sgd(lr=0.1), server_optimizer=Sgd(lr=0.2))
CHANGES: dict[str, Any] = {
    "batch": 32,
    "batches": "own",
    "sampling": "uniform",
    "last_batch": "drop",
    "client_optimizer": Adam(lr=0.3),
    "server_optimizer": Adam(lr=0.4),
    "dtype": "float64",
    "loss": CrossEntropy(),
    "dropout": Dropout(party=0.3),
}


def test_the_defaults() -> None:
    assert (BASE.batches, BASE.last_batch, BASE.dtype, BASE.loss) == ("shared", "keep", "float32", Auto())


def test_everything_can_be_overridden() -> None:
    assert set(CHANGES) == set(Training.model_fields) == set(TrainingOverride.model_fields)


@pytest.mark.parametrize("key", sorted(CHANGES))
def test_an_override_changes_what_it_names_and_nothing_else(key: str) -> None:
    changed = BASE.overridden(TrainingOverride(**{key: CHANGES[key]}))
    assert type(changed) is Training
    assert getattr(changed, key) == CHANGES[key]
    assert changed != BASE
    assert changed.model_copy(update={key: getattr(BASE, key)}) == BASE


def test_an_empty_override_changes_nothing() -> None:
    assert BASE.overridden(None) == BASE.overridden(TrainingOverride()) == BASE
    assert BASE.overridden(TrainingOverride(batch=None)) == BASE


def test_the_precision_is_one_of_pytorchs() -> None:
    assert BASE.torch_dtype == torch.float32
    assert BASE.overridden(TrainingOverride(dtype="float64")).torch_dtype == torch.float64


@pytest.mark.parametrize("model", [Training, TrainingOverride])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch", 0),
        ("batch", "8 s"),
        ("batches", "mine"),
        ("last_batch", "pad"),
        ("dtype", "float16"),
        ("loss", "hinge"),
    ],
)
def test_bad_values_are_refused(model: type[Training | TrainingOverride], key: str, value: Any) -> None:
    given = {} if model is TrainingOverride else BASE.model_dump()
    with pytest.raises(ValidationError, match=key):
        model.model_validate({**given, key: value})


def test_a_dump_loads_back() -> None:
    assert Training.model_validate(BASE.model_dump(mode="json")) == BASE
