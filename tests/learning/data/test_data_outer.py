"""Rows that some parties lack: which are used, and what stands in their place."""

import numpy as np
import pandas as pd
import pytest

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.optimizers import Sgd
from vflsim.learning.training import Training

TRAINING = Training(batch=10, client_optimizer=Sgd(lr=1), server_optimizer=Sgd(lr=1))
BANK, SHOP, LABELLED = [*range(0, 30)], [*range(20, 52)], [*range(2, 50), 90, 91]
"""Ids: 0, 1, 50 and 51 have no label, 90 and 91 no features. 48 rows are left, 20..29 at both."""


@pytest.fixture
def files(tmp_path):
    """Every feature is the id, in a unit of its own."""
    rng = np.random.default_rng(0)
    for name, ids, columns in (("bank", BANK, {"balance": 10}), ("shop", SHOP, {"visits": 1, "basket": -1})):
        table = pd.DataFrame({"key": rng.permutation(ids)})
        table.assign(**{column: table["key"] * unit for column, unit in columns.items()}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    labels = pd.DataFrame({"key": rng.permutation(LABELLED)})
    labels.assign(y=labels["key"] % 2).to_csv(tmp_path / "labels.csv", index=False)
    return {"parties": ["bank.csv", "shop.csv"], "labels": "labels.csv", "label": "y", "id": "key", "align": "outer"}


def loaded_from(files, folder, **changes):
    return load(Data(**{**files, **changes}), Partition(), "float64", folder)


def test_every_labelled_row_of_any_party_is_used_with_zeros_where_one_lacks_it(files, tmp_path):
    loaded = loaded_from(files, tmp_path, scale="none", validation_fraction=0.2)
    found = []
    for split in ("train", "validation", "test"):
        bank, shop = (getattr(party, split) for party in loaded.parties)
        here = getattr(loaded.present, split)
        ids = np.where(here[:, 0], bank[:, 0] / 10, shop[:, 0])
        np.testing.assert_array_equal(here, np.stack([np.isin(ids, BANK), np.isin(ids, SHOP)], axis=1))
        np.testing.assert_array_equal(bank[:, 0], np.where(here[:, 0], 10 * ids, 0))
        np.testing.assert_array_equal(shop, np.where(here[:, [1]], np.stack([ids, -ids], axis=1), 0))
        np.testing.assert_array_equal(getattr(loaded.labels, split), ids % 2)
        found += ids.tolist()
    assert sorted(found) == [*range(2, 50)]


def test_absent_rows_and_those_left_out_are_counted(files, tmp_path):
    facts = loaded_from(files, tmp_path).facts
    assert facts.stated()["alignment"] == {
        "rule": "outer",
        "rows": 48,
        "files": (
            {"file": "bank.csv", "rows": 30, "used": 28},
            {"file": "shop.csv", "rows": 32, "used": 30},
            {"file": "labels.csv", "rows": 50, "used": 48},
        ),
    }
    assert [*facts.sentences()] == [
        "rows: 48 ids have a label, and features at some party (align: outer); absent: 20 in bank.csv, 18 in shop.csv; "
        "left out: 2 of 30 in bank.csv, 2 of 32 in shop.csv, 2 of 50 in labels.csv"
    ]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_party_scales_fills_and_codes_by_the_training_rows_that_it_holds(files, tmp_path, scale):
    table = pd.read_csv(tmp_path / "shop.csv")
    table["kind"] = np.where(table["key"] % 3, "a", "b")
    table.loc[table["key"] % 5 == 0, "basket"] = np.nan
    table.to_csv(tmp_path / "shop.csv", index=False)
    plain = loaded_from(files, tmp_path, scale="none", categorical=["kind"], missing="mean").parties[1]
    loaded = loaded_from(files, tmp_path, scale=scale, categorical=["kind"], missing="indicator")
    shop, here = loaded.parties[1].train, loaded.present.train[:, 1]
    assert not shop[~here].any()
    assert set(shop[here, 2]) == {1, 2}
    low, high = (0, 1) if scale == "minmax" else (-3, 3)
    assert shop[here].min() >= low
    assert shop[here, :2].max() <= high
    if scale == "standard":
        np.testing.assert_allclose(shop[here, :2].mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(shop[here, :2].std(0), 1)
    (gaps,) = loaded.facts.stated()["missing"]
    holds = plain.train[here, 0] % 5 != 0
    assert gaps["value"] == pytest.approx(-plain.train[here, 0][holds].mean())
    assert gaps["train"] == int((~holds).sum())
    assert loaded.facts.categories[0].size == 2


def test_noise_is_for_rows_that_are_there(files, tmp_path):
    loaded = loaded_from(files, tmp_path, noise={"select": "all", "sd": 1})
    for place, party in enumerate(loaded.parties):
        here = loaded.present.train[:, place]
        assert not party.train[~here].any()
        assert party.train[here].all()


def test_no_file_lacks_a_row_where_all_hold_the_same(files, tmp_path):
    same = [pd.read_csv(tmp_path / name) for name in ("bank.csv", "shop.csv", "labels.csv")]
    for name, table in zip(("bank.csv", "shop.csv", "labels.csv"), same, strict=True):
        table[table["key"].isin(range(20, 30))].to_csv(tmp_path / name, index=False)
    outer, inner = (loaded_from(files, tmp_path, align=rule) for rule in ("outer", "inner"))
    assert outer.present is None
    assert not outer.facts.stated()
    np.testing.assert_array_equal(outer.joint.train, inner.joint.train)


def test_a_party_with_the_label_decides_the_rows(files, tmp_path):
    bank = pd.read_csv(tmp_path / "bank.csv")
    bank.assign(y=bank["key"] % 2).to_csv(tmp_path / "bank.csv", index=False)
    loaded = loaded_from({key: value for key, value in files.items() if key != "labels"}, tmp_path)
    assert sum(loaded.sizes.values()) == 30
    assert loaded.present.train[:, 0].all()


def test_files_of_one_length_may_hold_other_ids(files, tmp_path):
    """Two files of 30 rows, with all 30 labels in the first: nothing is left out, and the other lacks 10."""
    bank, shop = pd.read_csv(tmp_path / "bank.csv"), pd.read_csv(tmp_path / "shop.csv")
    bank.assign(y=bank["key"] % 2).to_csv(tmp_path / "bank.csv", index=False)
    shop.assign(key=shop["key"] - 10)[shop["key"] < 50].to_csv(tmp_path / "shop.csv", index=False)
    loaded = loaded_from({key: value for key, value in files.items() if key != "labels"}, tmp_path)
    assert [*loaded.facts.sentences()] == [
        "rows: 30 ids have a label, and features at some party (align: outer); absent: 10 in shop.csv; left out: 10 of "
        "30 in shop.csv"
    ]


def test_which_rows_parties_hold_follows_the_parties_asked(files, tmp_path):
    plain = LoadedData.of(loaded_from(files, tmp_path), TRAINING)
    active = LoadedData.of(load(Data(**files), Partition(active=True), folder=tmp_path), TRAINING)
    np.testing.assert_array_equal(plain.present_at(2, 1)["train"], plain.present["train"].flip(1))
    assert plain.on("meta").present["train"].device.type == "meta"
    np.testing.assert_array_equal(active.present_at(0)["test"], active.present["test"][:, :1])
    np.testing.assert_array_equal(active.present_at(1)["test"], active.present["test"][:, 1:])


def test_what_cannot_be_aligned_is_refused_with_the_counts(files, tmp_path):
    with pytest.raises(ValueError, match="scale: pooled needs parties with the same rows"):
        Data(**files, scale="pooled")
    labels = pd.read_csv(tmp_path / "labels.csv")
    labels[labels["key"] > 30].to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(DataError, match=r"no id of bank\.csv has a label in labels\.csv: bank\.csv has 30"):
        loaded_from(files, tmp_path)


def test_a_group_is_known_of_every_row(files, tmp_path):
    shop = pd.read_csv(tmp_path / "shop.csv")
    shop.assign(who=shop["key"] // 2).to_csv(tmp_path / "shop.csv", index=False)
    with pytest.raises(DataError, match=r"18 rows have no group: their ids are not in shop\.csv"):
        loaded_from(files, tmp_path, group="who")


def test_a_party_holds_some_training_rows(files, tmp_path):
    """One that holds a single test row has nothing to learn from."""
    every = loaded_from(files, tmp_path, scale="none")
    lonely = every.parties[1].test[every.present.test[:, 1]][0, 0]
    shop = pd.read_csv(tmp_path / "shop.csv")
    shop[shop["key"] == lonely].to_csv(tmp_path / "shop.csv", index=False)
    pd.DataFrame({"key": LABELLED, "balance": LABELLED}).to_csv(tmp_path / "bank.csv", index=False)
    with pytest.raises(DataError, match=r"client-2: shop\.csv: holds none of the training rows"):
        [loaded_from(files, tmp_path, split_seed=seed) for seed in range(20)]  # one split in five is as wanted
