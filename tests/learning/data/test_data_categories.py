"""Categorical columns: codes from training rows alone, apart from scaling, and who may hold them."""

import numpy as np
import pandas as pd
import pytest
import torch

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.joint import RowSplit
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.data.preparation import coded
from vflsim.learning.data.raw import View
from vflsim.learning.models.layers import OneHot
from vflsim.learning.models.shapes import TableShape
from vflsim.learning.optimizers import Sgd
from vflsim.learning.training import Training

ROWS = 60
TABLE = pd.DataFrame(
    {
        "id": range(ROWS),
        "size": np.linspace(-3, 9, ROWS),
        "colour": [["red", "green", None, f"rare {row}"][row % 4] for row in range(ROWS)],
        "shop": [10 * (row % 3) for row in range(ROWS)],
        "age": [row % 7 for row in range(ROWS)],
        "y": [row // 2 % 2 for row in range(ROWS)],
    }
)
SAID = {"label": "y", "id": "id", "categorical": ["shop", "colour"]}


@pytest.fixture
def table(tmp_path):
    TABLE.to_csv(tmp_path / "all.csv", index=False)
    return {"file": str(tmp_path / "all.csv"), **SAID}


def columns_of(loaded, split):
    arrays = [getattr(party, split) for party in loaded.parties]
    names = [name for party in loaded.parties for name in party.feature_names]
    return dict(zip(names, np.concatenate(arrays, axis=1).T, strict=True))


def row_ids(loaded, split):
    """Which rows a split has: `size` grows with the row's number, and scaling keeps that."""
    sizes = np.concatenate([columns_of(loaded, each)["size"] for each in ("train", "test")])
    ranks = sizes.argsort().argsort()
    cut = loaded.sizes["train"]
    return ranks[:cut] if split == "train" else ranks[cut:]


def test_training_rows_alone_decide_the_codes(table):
    loaded = load(Data(**table), Partition(clients=2), "float64")
    train, test = columns_of(loaded, "train"), columns_of(loaded, "test")
    rows, other = TABLE.iloc[row_ids(loaded, "train")], TABLE.iloc[row_ids(loaded, "test")]
    for name in ("colour", "shop"):
        known = dict(zip(rows[name].fillna("(empty)"), train[name], strict=True))  # one code a category
        assert sorted(known.values()) == [*range(1, len(known) + 1)]
        assert [known[value] for value in rows[name].fillna("(empty)")] == train[name].tolist()
        assert [known.get(value, 0) for value in other[name].fillna("(empty)")] == test[name].tolist()
    assert 0 in test["colour"]  # a rare one of the test rows
    assert abs(train["age"].mean()) < 1e-12  # numbers are scaled as ever
    shapes = [party.feature_shape for party in loaded.parties]
    assert shapes == [TableShape((0, int(train["colour"].max()) + 1)), TableShape((4, 0))]


def test_the_vocabulary_is_stated_with_the_rows_that_have_others(table):
    loaded = load(Data(**table), Partition(clients=2))
    shop, colour = sorted(loaded.facts.stated()["categories"], key=lambda each: each["column"], reverse=True)
    assert shop == {
        "party": "client-2", "column": "shop", "size": 3, "categories": ("0", "10", "20"), "validation": 0, "test": 0
    }  # fmt: skip
    known = TABLE["colour"].iloc[row_ids(loaded, "train")].fillna("")
    assert [colour["party"], colour["size"]] == ["client-1", known.nunique()]
    assert set(colour["categories"]) == set(known)
    unknown = int((columns_of(loaded, "test")["colour"] == 0).sum())
    assert (colour["validation"], colour["test"]) == (0, unknown)
    (line,) = loaded.facts.sentences()
    assert line.startswith("categories of training rows: 'colour' of client-1: ")
    assert line.endswith(f"(others in {unknown} test rows); 'shop' of client-2: 0, 10, 20")


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_one_hot_columns_are_those_that_models_make_of_codes(table, scale):
    codes, columns = (
        load(Data(**table, scale=scale, encoding=how), Partition(clients=2)) for how in ("codes", "one_hot")
    )
    for coded_party, party in zip(codes.parties, columns.parties, strict=True):
        one_hot = OneHot(coded_party.feature_shape.cardinalities)
        assert party.feature_shape == (one_hot.width,)
        for split in ("train", "test"):
            wanted = one_hot(torch.from_numpy(getattr(coded_party, split).copy()))
            np.testing.assert_array_equal(getattr(party, split), wanted)
    assert columns.facts == codes.facts
    assert columns.parties[1].feature_names == ("shop=0", "shop=10", "shop=20", "age")


@pytest.mark.parametrize("scale", ["standard", "minmax", "none"])
def test_no_scale_touches_codes(table, scale):
    for dtype in ("float32", "float64"):
        shops = columns_of(load(Data(**table, scale=scale), Partition(clients=1), dtype), "train")["shop"]
        assert set(shops.tolist()) == {1.0, 2.0, 3.0}


def test_a_party_of_numbers_has_a_plain_shape(table):
    cut = Partition(by="explicit", columns=[["age", "size"], ["shop"], ["colour"]])
    loaded = load(Data(**table), cut)
    assert [type(party.feature_shape) for party in loaded.parties] == [tuple, TableShape, TableShape]
    training = Training(batch=10, client_optimizer=Sgd(lr=1), server_optimizer=Sgd(lr=1))
    assert "4 features (2 categorical) at 3 clients" in LoadedData.of(loaded, training).summary()


def test_an_active_servers_columns_may_be_categorical(table):
    cut = Partition(by="explicit", columns=[["shop", "age"], ["size", "colour"]], active=True)
    training = Training(batch=10, client_optimizer=Sgd(lr=1), server_optimizer=Sgd(lr=1))
    assert LoadedData.of(load(Data(**table), cut), training).active_shape == TableShape((4, 0))


def test_files_of_parties_name_them_together(tmp_path):
    TABLE[["id", "size", "colour", "y"]].to_csv(tmp_path / "a.csv", index=False)
    TABLE[["id", "shop", "age"]].sample(frac=1, random_state=0).to_parquet(tmp_path / "b.parquet", index=False)
    files = {"parties": [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")]}
    loaded = load(Data(**files, **SAID), Partition())
    TABLE.to_csv(tmp_path / "all.csv", index=False)
    together = load(Data(file=str(tmp_path / "all.csv"), **SAID), Partition(clients=2), "float32")
    assert loaded.parties[0].feature_shape == together.parties[0].feature_shape
    assert loaded.parties[1].feature_shape == TableShape((4, 0))
    with pytest.raises(DataError, match=r"no file has a categorical column 'shap'(.|\n)*'shop'"):
        load(Data(**files, label="y", id="id", categorical=["colour", "shap"]), Partition())


def test_what_cannot_be_categorical_is_refused(table, tmp_path):
    with pytest.raises(DataError, match=r"no categorical column 'shap'(.|\n)*'shop'"):
        load(Data(**{**table, "categorical": ["shap"]}), Partition(clients=2))
    with pytest.raises(DataError, match="client 2 has categorical columns, and noise is for numbers"):
        load(Data(**table, noise={"select": "all", "sd": 1}), Partition(by="explicit", columns=[["age"], ["shop"]]))
    np.savez(tmp_path / "t.npz", y=TABLE["y"], shop=TABLE["shop"])
    with pytest.raises(DataError, match="'shop' is an array"):
        load(Data(file=str(tmp_path / "t.npz"), label="y", categorical=["shop"]), Partition(clients=1))
    view = View("t", np.arange(2000.0)[:, None], ("c",), categories=(tuple(map(str, range(2000))),))
    rows = RowSplit(np.arange(2000), np.empty(0, int), np.empty(0, int))
    with pytest.raises(DataError, match="'c' has 2,000 categories, more than float16 can number"):
        coded(view, rows, "codes", np.dtype("float16"), "client-1")
