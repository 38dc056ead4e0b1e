import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import DataError
from vflsim.learning.data.joint import given_split, split_rows


def _split(strata, groups=None, test=0.2, validation=0.0, official=None, seed=0, train_rows=None):
    return split_rows(np.asarray(strata), groups, test, validation, official, seed, train_rows)


def _parts(split):
    return [split.train, split.validation, split.test]


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(8, 40), min_size=1, max_size=5),
    test=st.floats(0.1, 0.5),
    validation=st.sampled_from([0.0, 0.25]),
    seed=st.integers(0, 5),
)
def test_every_row_is_in_exactly_one_split_and_classes_keep_their_shares(sizes, test, validation, seed):
    strata = np.repeat(np.arange(len(sizes)), sizes)
    split = _split(strata, test=test, validation=validation, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(_parts(split))), np.arange(len(strata)))
    for fraction, rows in ((test, split.test), (validation, split.validation)):
        assert len(rows) == round(fraction * len(strata))
    counts = np.bincount(strata[split.test], minlength=len(sizes))
    assert np.all(np.abs(counts - np.array(sizes) * len(split.test) / len(strata)) <= 1)
    assert set(strata[split.train]) == set(strata)


def test_rows_of_a_split_stand_in_the_order_of_the_file():
    for rows in _parts(_split(np.zeros(100, int), validation=0.2)):
        assert np.all(np.diff(rows) > 0)


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    strata = np.arange(200) % 3
    np.testing.assert_array_equal(_split(strata, seed=4).test, _split(strata, seed=4).test)
    assert set(_split(strata, seed=4).test) != set(_split(strata, seed=5).test)


def test_the_split_of_a_seed_is_stable_for_ever():
    assert _split(np.arange(20) % 2, test=0.3, seed=1).test.tolist() == [6, 9, 11, 16, 18, 19]


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 3), min_size=30, max_size=60), seed=st.integers(0, 9))
def test_no_group_stands_in_two_splits(sizes, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    split = _split(groups % 2, groups, test=0.3, validation=0.2, seed=seed)
    train, validation, test = (set(groups[rows]) for rows in _parts(split))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(train | validation | test) == len(sizes)
    assert abs(len(split.test) - 0.3 * len(groups)) <= 4  # half a group per class, and rounding


def test_groups_are_stratified_by_their_class():
    groups = np.repeat(np.arange(40), 3)
    strata = (groups < 10).astype(int)
    split = _split(strata, groups, test=0.3)
    assert np.bincount(strata[split.test]).tolist() == [27, 9]


def test_official_test_rows_are_the_test_split_whatever_the_seed():
    for seed in (0, 1):
        split = _split(np.arange(50) % 2, test=0.2, validation=0.1, official=40, seed=seed)
        assert split.test.tolist() == list(range(40, 50))
        assert len(split.validation) == 4
        assert len(split.train) == 36


def test_train_rows_are_drawn_by_class_and_leave_the_other_splits_alone():
    strata = np.repeat([0, 1], [300, 100])
    whole, limited = _split(strata), _split(strata, train_rows=40)
    np.testing.assert_array_equal(whole.test, limited.test)
    assert set(limited.train) <= set(whole.train)
    assert np.bincount(strata[limited.train]).tolist() == [30, 10]


def test_all_training_rows_may_be_asked_for():
    assert len(_split(np.zeros(50, int), train_rows=40).train) == 40


def test_more_training_rows_than_there_are_is_an_error():
    with pytest.raises(DataError, match=r"data\.train_rows: 41 training rows are wanted, but there are 40"):
        _split(np.zeros(50, int), train_rows=41)


def test_a_split_that_would_be_empty_is_an_error():
    with pytest.raises(DataError, match=r"data\.test_fraction: the test split of 3 rows would be empty"):
        _split(np.zeros(3, int), test=0.1)
    with pytest.raises(DataError, match=r"data\.validation_fraction"):
        _split(np.zeros(10, int), validation=0.01)


def test_a_class_of_one_row_is_trained_on():
    strata = np.array([0] * 30 + [1])
    for seed in range(5):
        assert 30 in _split(strata, test=0.5, seed=seed).train


def test_a_column_gives_the_split():
    split = given_split(np.array(["test", " train", "validation", "train "]), "data.split_column")
    assert [rows.tolist() for rows in _parts(split)] == [[1, 3], [2], [0]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "dev", "test", "dev"], r"row 2 is 'dev' \(2 such rows in all\)"),
        ([0, 1], "row 1 is '0'"),
        (["train", "train"], "no row is test"),
        (["test", "validation"], "no row is train"),
    ],
)
def test_a_column_that_gives_no_split_is_refused(words, message):
    with pytest.raises(DataError, match=message):
        given_split(np.array(words), "data.split_column")
