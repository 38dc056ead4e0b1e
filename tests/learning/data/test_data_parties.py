"""Files of several parties: their views, and rows aligned by id."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.user import aligned

ROWS = 20


@pytest.fixture
def parties(write_csv):
    """Two party files in different orders and a labels file in a third one."""
    ids = [f"p{number:02d}" for number in range(ROWS)]
    write_csv("bank.csv", "key,balance", [(key, int(key[1:]) * 10) for key in ids])
    write_csv("shop.csv", "key,visits,basket", [(key, int(key[1:]) + 0.5, -int(key[1:])) for key in reversed(ids)])
    shuffled = [ids[index] for index in np.random.default_rng(0).permutation(ROWS)]
    write_csv("labels.csv", "key,good", [(key, int(key[1:]) % 2) for key in shuffled])
    return {"parties": ["bank.csv", "shop.csv"], "labels": "labels.csv", "label": "good", "id": "key"}


def test_rows_are_aligned_by_id_whatever_the_order_in_the_files(parties, tmp_path):
    loaded = load(Data(**parties, scale="none"), Partition(), "float64", tmp_path)
    bank, shop = loaded.parties
    assert (bank.source, shop.source) == ("bank.csv", "shop.csv")
    assert shop.feature_names == ("visits", "basket")
    for split in ("train", "test"):
        number = getattr(bank, split)[:, 0] / 10
        np.testing.assert_array_equal(getattr(shop, split)[:, 0], number + 0.5)
        np.testing.assert_array_equal(getattr(shop, split)[:, 1], -number)
        np.testing.assert_array_equal(getattr(loaded.labels, split), number % 2)


def test_the_label_may_stand_with_one_of_the_parties(write_csv, tmp_path):
    write_csv("a.csv", "id,u,y", [(k, k, k % 2) for k in range(ROWS)])
    write_csv("b.csv", "id,v", [(k, k) for k in range(ROWS)])
    data = Data(parties=("a.csv", "b.csv"), label="y", id="id")
    assert [party.feature_names for party in load(data, Partition(), folder=tmp_path).parties] == [("u",), ("v",)]


def test_formats_may_be_mixed_and_images_stay_images(write_csv, tmp_path, rng):
    np.savez(tmp_path / "scan.npz", key=np.arange(ROWS)[::-1], scan=rng.integers(0, 9, (ROWS, 5, 6)))
    write_csv("b.csv", "key,v,y", [(k, k, k % 2) for k in range(ROWS)])
    data = Data(parties=("scan.npz", "b.csv"), label="y", id="key")
    assert [p.feature_shape for p in load(data, Partition(), folder=tmp_path).parties] == [(1, 5, 6), (1,)]


def test_groups_may_stand_in_the_labels_file(write_csv, tmp_path):
    write_csv("a.csv", "id,u", [(k, k) for k in range(ROWS)])
    write_csv("l.csv", "id,y,who", [(k, k // 2 % 2, f"g{k // 2}") for k in range(ROWS)])
    data = Data(parties=("a.csv",), labels="l.csv", label="y", id="id", group="who", scale="none")
    loaded = load(data, Partition(), folder=tmp_path)
    assert not set(loaded.parties[0].train[:, 0] // 2) & set(loaded.parties[0].test[:, 0] // 2)


def test_the_split_may_stand_in_any_of_the_files(write_csv, tmp_path):
    write_csv("a.csv", "id,u", [(k, k) for k in reversed(range(ROWS))])
    write_csv("b.csv", "id,v,y,part", [(k, k, k % 2, "test" if k < 5 else "train") for k in range(ROWS)])
    data = Data(parties=("a.csv", "b.csv"), label="y", id="id", split_column="part", scale="none")
    loaded = load(data, Partition(), folder=tmp_path)
    assert sorted(loaded.parties[0].test[:, 0]) == [0, 1, 2, 3, 4]
    assert [party.feature_names for party in loaded.parties] == [("u",), ("v",)]


def _refused(parties, tmp_path, message, partition=None, **changes):
    with pytest.raises(DataError, match=message) as caught:
        load(Data(**{**parties, **changes}), partition or Partition(), folder=tmp_path)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.fixture
def fewer(parties, write_csv):
    """The shop lacks three ids of the bank, and has one of its own."""
    write_csv("shop.csv", "key,visits", [(f"p{k:02d}", k) for k in np.random.default_rng(1).permutation(range(3, 21))])
    return parties


def test_rows_that_all_files_hold_are_used_and_the_others_counted(fewer, tmp_path):
    loaded = load(Data(**fewer, scale="none"), Partition(), "float64", tmp_path)
    assert sum(loaded.sizes.values()) == 17
    for split in ("train", "test"):
        bank, shop = (getattr(party, split)[:, 0] for party in loaded.parties)
        np.testing.assert_array_equal(bank / 10, shop)
        np.testing.assert_array_equal(getattr(loaded.labels, split), shop % 2)
    assert loaded.facts.stated() == {
        "alignment": {
            "rule": "inner",
            "rows": 17,
            "files": (
                {"file": "bank.csv", "rows": 20, "used": 17},
                {"file": "shop.csv", "rows": 18, "used": 17},
                {"file": "labels.csv", "rows": 20, "used": 17},
            ),
        }
    }
    assert [*loaded.facts.sentences()] == [
        "rows: 17 ids stand in all 3 files (align: inner); left out: 3 of 20 in bank.csv, 1 of 18 in shop.csv, "
        "3 of 20 in labels.csv"
    ]


def test_rows_that_are_left_out_leave_no_trace(fewer, write_csv, tmp_path):
    once = load(Data(**fewer), Partition(), folder=tmp_path)
    write_csv("bank.csv", "key,balance", [(f"p{k:02d}", k * 10) for k in range(3, ROWS)])
    write_csv("labels.csv", "key,good", [(f"p{k:02d}", k % 2) for k in range(3, ROWS)])
    write_csv("shop.csv", "key,visits", [(f"p{k:02d}", k) for k in range(3, ROWS)])
    again = load(Data(**fewer), Partition(), folder=tmp_path)
    np.testing.assert_array_equal(once.joint.train, again.joint.train)
    np.testing.assert_array_equal(once.labels.test, again.labels.test)
    assert not again.facts.stated()


def test_files_that_differ_are_refused_with_counts_and_an_example_if_asked(fewer, tmp_path):
    error = _refused(fewer, tmp_path, r"3 ids of bank\.csv are missing in shop\.csv \(such as 'p00'\)", align="exact")
    assert "1 ids of shop.csv are missing in bank.csv (such as 'p20')" in str(error)


def test_numbers_and_text_as_ids_do_not_match_and_the_error_says_why(parties, write_csv, tmp_path):
    write_csv("shop.csv", "key,visits", [(k, k) for k in range(ROWS)])
    for rule, counts in (("inner", "bank.csv has 20, shop.csv has 20"), ("exact", "20 ids")):
        assert "numbers in one file and text" in _refused(parties, tmp_path, counts, align=rule).remedy


def test_ids_of_other_things_have_no_row_in_common(parties, write_csv, tmp_path):
    write_csv("shop.csv", "key,visits", [(f"q{k:02d}", k) for k in range(ROWS)])
    assert "same ids" in _refused(parties, tmp_path, "no id stands in every file").remedy


def test_one_file_has_nothing_to_align(tmp_path):
    with pytest.raises(ValueError, match="align belongs to parties"):
        Data(file="all.csv", label="good", align="inner")


def test_a_repeated_id_is_refused(parties, write_csv, tmp_path):
    write_csv("bank.csv", "key,balance", [("p00", 1), *((f"p{k:02d}", k) for k in range(ROWS))])
    _refused(parties, tmp_path, r"bank\.csv: id 'p00' stands in more than one row")


def test_a_missing_id_column_lists_near_matches(parties, tmp_path):
    assert "'key'" in _refused(parties, tmp_path, r"has no column 'keyy' \(the id\)", id="keyy").allowed


def test_fractional_ids_are_refused(parties, write_csv, tmp_path):
    np.savez(tmp_path / "bank.npz", key=np.arange(ROWS) + 0.5, balance=np.arange(ROWS))
    parties["parties"][0] = "bank.npz"
    _refused(parties, tmp_path, r"column 'key' \(the id\) is of type float64")


def test_a_label_that_nobody_has_lists_near_matches(parties, tmp_path):
    assert "'good'" in _refused(parties, tmp_path, "stands in 0 of the 3 files", label="godo").allowed


def test_a_label_in_two_files_is_refused(parties, write_csv, tmp_path):
    write_csv("bank.csv", "key,good", [(f"p{k:02d}", k % 2) for k in range(ROWS)])
    _refused(parties, tmp_path, "column 'good' .the label. stands in 2 of the 3 files")


def test_features_in_the_labels_file_are_refused_unless_dropped(parties, write_csv, tmp_path):
    write_csv("labels.csv", "key,good,extra", [(f"p{k:02d}", k % 2, k) for k in range(ROWS)])
    _refused(parties, tmp_path, "column 'extra' of the labels file belongs to no party")
    assert load(Data(**parties, drop=("extra",)), Partition(), folder=tmp_path).clients == 2


def test_a_column_to_drop_must_stand_somewhere(parties, tmp_path):
    assert "'visits'" in _refused(parties, tmp_path, "no file has a column 'visit'", drop=("visit",)).allowed


def test_the_partition_cannot_contradict_the_files(parties, tmp_path):
    _refused(parties, tmp_path, "every client its own file", Partition(by="columns", clients=2))
    _refused(parties, tmp_path, "3 clients for 2 views", Partition(clients=3))
    assert load(Data(**parties), Partition(by="views", clients=2), folder=tmp_path).clients == 2


FILES = [Path("a.csv"), Path("b.csv"), Path("c.csv"), Path("labels.csv")]
some_ids = st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True)


@settings(max_examples=examples(60))
@given(st.lists(some_ids, min_size=4, max_size=4), st.integers(0, 3))
def test_the_rows_used_are_those_of_sets(ids: list[list[int]], label: int) -> None:
    indexes, parties = [pd.Index(each) for each in ids], 3
    union, labelled = set().union(*ids[:parties]), set(ids[label])
    for rule, wanted in (("inner", set.intersection(*map(set, ids))), ("outer", union & labelled)):
        if not wanted or any(wanted.isdisjoint(each) for each in ids):
            with pytest.raises(DataError, match=r"a\.csv has"):
                aligned(rule, FILES, indexes, parties, label)
            continue
        used, found = aligned(rule, FILES, indexes, parties, label)
        assert len(used) == len(wanted) == len(set(used) & wanted)
        first = [each for each in ids[0] if each in wanted]
        assert used.tolist()[: len(first)] == first
        if all(set(each) == wanted for each in ids):
            assert found is None
        else:
            assert [(each.rows, each.used) for each in found.files] == [
                (len(each), len(wanted & set(each))) for each in ids
            ]
    if any(set(each) != set(ids[0]) for each in ids):
        with pytest.raises(DataError, match="are missing in"):
            aligned("exact", FILES, indexes, parties, label)
