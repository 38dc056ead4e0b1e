import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, PartitionedData, describe, load

SPLITS = ("train", "validation", "test")


def _check(loaded: PartitionedData, dtype: str) -> None:
    """What holds for every data set: shapes, dtypes, memory order, scaling on training rows."""
    for split, rows in loaded.sizes.items():
        labels = getattr(loaded.labels, split)
        assert labels.shape == (rows,)
        assert labels.dtype == ("int64" if loaded.task == "multiclass" else dtype)
        joint = getattr(loaded.joint, split)
        assert joint.shape == (rows, loaded.features)
        assert joint.dtype == dtype
        assert joint.flags.c_contiguous
        assert joint.ctypes.data % 64 == 0 or not rows
        assert np.isfinite(joint).all()
        for party in loaded.parties:
            values = getattr(party, split)
            assert values.shape == (rows, *party.feature_shape)
            assert np.shares_memory(values, joint) or not rows
            np.testing.assert_array_equal(values.reshape(rows, len(party.feature_names)), joint[:, party.columns])
    assert [column for p in loaded.parties for column in range(p.columns.start, p.columns.stop)] == [
        *range(loaded.features)
    ]
    for number, party in enumerate(loaded.parties, start=1):
        assert party.name == f"client-{number}"
        assert len(party.feature_names) == len(set(party.feature_names)) == np.prod(party.feature_shape)


@pytest.mark.parametrize("by", ["image_rows", "columns"])
def test_pooled_pixels_are_scaled_as_whole_images_before_they_are_cut(by):
    whole = load(Data(name="digits"), Partition(clients=1), "float64")
    cut = load(Data(name="digits", scale="pooled"), Partition(clients=4, by=by), "float64")
    np.testing.assert_allclose(cut.joint.train, whole.joint.train, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(cut.joint.test, whole.joint.test, rtol=1e-12, atol=1e-15)
    apart = load(Data(name="digits"), Partition(clients=4, by=by), "float64")
    assert not np.allclose(apart.joint.train, cut.joint.train)


def test_pooling_leaves_the_columns_of_tables_apart():
    standard, pooled = (load(Data(name="breast_cancer", scale=s), Partition(clients=3)) for s in ("standard", "pooled"))
    assert standard.joint.train.tobytes() == pooled.joint.train.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digits_are_cut_split_and_scaled(dtype):
    data = Data(name="digits", test_fraction=0.2, validation_fraction=0.1)
    loaded = load(data, Partition(clients=8), dtype)
    _check(loaded, dtype)
    assert loaded.sizes == {"train": 1258, "validation": 180, "test": 359}
    assert (loaded.task, loaded.classes, loaded.outputs, loaded.features) == ("multiclass", 10, 10, 64)
    for party in loaded.parties:
        assert party.train.mean() == pytest.approx(0, abs=1e-5)
        assert party.train.std() == pytest.approx(1, abs=1e-5)


def test_every_sample_is_there_once_and_the_same_at_every_party():
    original, target = load_digits(return_X_y=True)
    loaded = load(Data(name="digits", scale="none", validation_fraction=0.2), Partition(clients=5), "float64")
    rows = np.concatenate([np.concatenate([getattr(p, s) for p in loaded.parties], axis=1) for s in SPLITS])
    labels = np.concatenate([getattr(loaded.labels, s) for s in SPLITS])
    found, wanted = (np.column_stack(pair) for pair in ((rows, labels), (original, target)))
    np.testing.assert_array_equal(found[np.lexsort(found.T)], wanted[np.lexsort(wanted.T)])


def test_images_keep_their_pixels_in_place():
    whole = load(Data(name="digits", scale="none"), Partition(clients=1, by="image_rows"))
    strips = load(Data(name="digits", scale="none"), Partition(clients=3, by="image_rows"))
    assert [p.feature_shape for p in strips.parties] == [(1, 3, 8), (1, 3, 8), (1, 2, 8)]
    np.testing.assert_array_equal(np.concatenate([p.test for p in strips.parties], axis=2), whole.parties[0].test)


def test_no_party_sees_the_statistics_of_another_or_of_test_rows(write_csv, tmp_path, rng):
    def loaded(scale_b, test_shift):
        rows = [(k, k % 2, a, scale_b * a + 1) for k, a in enumerate(base)]
        write_csv("d.csv", "place,y,a,b", [(k, y, a + test_shift * (k in test), b) for k, y, a, b in rows])
        return load(Data(file="d.csv", label="y", id="place"), Partition(clients=2), "float64", tmp_path)

    base, test = rng.normal(size=60).round(6).tolist(), set()
    plain = loaded(1, 0)
    whole = load(Data(file="d.csv", label="y", drop=("b",), scale="none"), Partition(clients=2), "float64", tmp_path)
    test = set(whole.parties[0].test[:, 0].astype(int).tolist())
    assert len(test) == 12
    changed = loaded(50, 1000)
    np.testing.assert_array_equal(plain.parties[0].train, changed.parties[0].train)
    np.testing.assert_allclose(plain.parties[1].train, changed.parties[1].train, atol=1e-12)
    assert changed.parties[0].test.min() > 500


def test_breast_cancer_is_binary_with_float_labels():
    loaded = load(Data(name="breast_cancer", test_fraction=0.3), Partition(clients=3))
    _check(loaded, "float32")
    assert (loaded.task, loaded.classes, loaded.outputs, loaded.class_names) == ("binary", 2, 1, ("0", "1"))
    np.testing.assert_allclose(loaded.parties[0].train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(loaded.parties[0].train.std(axis=0), 1, atol=1e-5)
    share = load_breast_cancer().target.mean()
    for split in ("train", "test"):
        assert getattr(loaded.labels, split).mean() == pytest.approx(share, abs=0.01)


def test_the_same_arguments_give_the_same_bytes():
    a, b = (load(Data(name="breast_cancer", split_seed=3), Partition(clients=2)) for _ in range(2))
    assert all(p.train.tobytes() == q.train.tobytes() for p, q in zip(a.parties, b.parties, strict=True))


def test_columns_of_a_catalogued_table_can_be_dropped_but_no_pixels():
    loaded = load(Data(name="breast_cancer", drop=("mean radius",)), Partition(clients=29))
    assert "mean radius" not in [party.feature_names[0] for party in loaded.parties]
    with pytest.raises(DataError, match="no column 'mean radios' to drop"):
        load(Data(name="breast_cancer", drop=("mean radios",)), Partition(clients=2))
    with pytest.raises(DataError, match="pixels cannot be dropped"):
        load(Data(name="digits", drop=("pixel_0_0",)), Partition(clients=2))


def test_few_training_rows_leave_the_test_rows_alone():
    few = load(Data(name="digits", train_rows=100, scale="none"), Partition(clients=2))
    whole = load(Data(name="digits", scale="none"), Partition(clients=2))
    assert few.sizes["train"] == 100
    np.testing.assert_array_equal(few.parties[0].test, whole.parties[0].test)


def test_regression_keeps_the_values(write_csv, tmp_path):
    write_csv("d.csv", "a,y", [(k, k / 4) for k in range(40)])
    loaded = load(Data(file="d.csv", label="y", scale="none"), Partition(clients=1), "float64", tmp_path)
    _check(loaded, "float64")
    assert (loaded.task, loaded.classes, loaded.outputs, loaded.class_names) == ("regression", None, 1, ())
    np.testing.assert_array_equal(loaded.labels.test, loaded.parties[0].test[:, 0] / 4)


def test_user_files_with_groups_are_split_by_group_unless_told_otherwise(write_csv, tmp_path):
    write_csv("d.csv", "who,a,y", [(f"g{k // 4}", k, k // 4 % 2) for k in range(80)])
    loaded = load(Data(file="d.csv", label="y", group="who", scale="none"), Partition(clients=1), folder=tmp_path)
    assert not set(loaded.parties[0].train[:, 0] // 4) & set(loaded.parties[0].test[:, 0] // 4)


def test_npz_images_of_the_user_can_be_cut_into_patches(tmp_path, rng):
    np.savez(tmp_path / "d.npz", x=rng.integers(0, 256, (30, 3, 8, 6), dtype=np.uint8), y=np.arange(30) % 3)
    loaded = load(Data(file="d.npz", label="y"), Partition(clients=4, by="patches"), folder=tmp_path)
    _check(loaded, "float32")
    assert {p.feature_shape for p in loaded.parties} == {(3, 4, 3)}


def test_values_that_overflow_the_dtype_are_an_error(write_csv, tmp_path):
    write_csv("d.csv", "a,y", [(1e39 * k, k % 2) for k in range(20)])
    data, partition = Data(file="d.csv", label="y", scale="none"), Partition(clients=1)
    with pytest.raises(DataError, match=r"client-1: columns 0\.\.0: features of the training rows overflow float32"):
        load(data, partition, "float32", tmp_path)
    _check(load(data, partition, "float64", tmp_path), "float64")


def test_a_constant_label_names_the_file_and_the_column(write_csv, tmp_path):
    write_csv("d.csv", "a,y", [(k, 1) for k in range(20)])
    with pytest.raises(DataError, match=r"d\.csv, column 'y': all 20 rows have the same label, '1'"):
        load(Data(file="d.csv", label="y"), Partition(clients=1), folder=tmp_path)


def test_describe_says_how_big_it_is():
    said = describe(Data(name="digits"), Partition(clients=2, by="image_rows"))
    assert said["rows"] == {"train": 1438, "validation": 0, "test": 359}
    assert (said["features"], said["clients"], said["classes"], said["task"]) == (64, 2, 10, "multiclass")
    assert said["bytes"] == 1797 * 64 * 4
    assert said["parties"][1] == {"name": "client-2", "source": "pixel rows 4..7", "feature_shape": (1, 4, 8)}


def _real(*names: str) -> pytest.MarkDecorator:
    folder = os.environ.get("VFLSIM_DATA")
    absent = [name for name in names if not folder or not (Path(folder) / name).is_file()]
    return pytest.mark.skipif(bool(absent), reason=f"real file {absent[:1]} not found: set VFLSIM_DATA")


@_real("fashion-mnist/train-images-idx3-ubyte.gz", "fashion-mnist/t10k-images-idx3-ubyte.gz")
def test_fashion_mnist_has_its_official_split():
    loaded = load(Data(name="fashion_mnist"), Partition(clients=28, by="image_rows"))
    _check(loaded, "float32")
    assert loaded.sizes == {"train": 60_000, "validation": 0, "test": 10_000}
    assert loaded.parties[0].feature_shape == (1, 1, 28)
    assert np.bincount(loaded.labels.test).tolist() == [1000] * 10
    assert loaded.labels.train[:5].tolist() == [9, 0, 0, 3, 0]


@_real("mnist/train-images-idx3-ubyte.gz", "mnist/t10k-images-idx3-ubyte.gz")
def test_mnist_may_be_split_at_random():
    data = Data(name="mnist", split="random", test_fraction=0.3, train_rows=1000, scale="minmax")
    loaded = load(data, Partition(clients=4, by="patches"))
    _check(loaded, "float32")
    assert loaded.sizes == {"train": 1000, "validation": 0, "test": 21_000}
    assert max(p.train.max() for p in loaded.parties) == 1


@_real("credit/UCI_Credit_Card.csv")
def test_credit_has_its_features_and_shares():
    loaded = load(Data(name="credit"), Partition(clients=11))
    _check(loaded, "float32")
    assert (loaded.features, loaded.task) == (23, "binary")
    assert loaded.labels.train.sum() + loaded.labels.test.sum() == 6636
    assert "ID" not in [name for party in loaded.parties for name in party.feature_names]


@_real("parkinson/pd_speech_features.csv")
def test_parkinson_keeps_each_person_in_one_split():
    data = Data(name="parkinson", test_fraction=0.3, scale="none")
    loaded = load(data, Partition(clients=10), "float64")
    _check(loaded, "float64")
    assert (loaded.features, loaded.labels.train.sum() + loaded.labels.test.sum()) == (753, 564)
    table = np.genfromtxt(
        Path(os.environ["VFLSIM_DATA"]) / "parkinson/pd_speech_features.csv", delimiter=",", skip_header=2
    )
    who = {row[1:-1].tobytes(): int(row[0]) for row in table}

    def people(split):
        rows = np.concatenate([getattr(p, split) for p in loaded.parties], axis=1)
        return {who[row.tobytes()] for row in rows}

    assert not people("train") & people("test")
    assert len(people("train") | people("test")) == 252
    by_rows = load(data.model_copy(update={"split": "random"}), Partition(clients=10), "float64")
    assert by_rows.sizes["test"] == 227


@_real("criteo_sample/criteo_sample.txt")
def test_criteo_has_numbers_and_categories():
    loaded = load(Data(name="criteo_sample", scale="none"), Partition(clients=3), "float64")
    _check(loaded, "float64")
    numbers, mixed, categories = (party.feature_shape for party in loaded.parties)
    assert (numbers, *mixed, *categories) == ((13,), 13, 13)
    assert loaded.labels.train.sum() + loaded.labels.test.sum() == 49
    assert [name for party in loaded.parties for name in party.feature_names][12:14] == ["I13", "C1"]
    table = pd.read_csv(Path(os.environ["VFLSIM_DATA"]) / "criteo_sample/criteo_sample.txt")
    logs = np.log1p(table.filter(regex="^I").fillna(0).clip(lower=0)).to_numpy()
    rows = np.concatenate([loaded.parties[0].train, loaded.parties[0].test])
    assert np.allclose(rows[np.lexsort(rows.T)], logs[np.lexsort(logs.T)], rtol=1e-15)


@_real("handwritten/rcml_handwritten.mat")
def test_handwritten_gives_one_view_to_each_client():
    loaded = load(Data(name="handwritten", test_fraction=0.4), Partition())
    _check(loaded, "float32")
    assert [p.feature_shape[0] for p in loaded.parties] == [240, 76, 216, 47, 64, 6]
    assert [p.source for p in loaded.parties] == ["pix", "fou", "fac", "zer", "kar", "mor"]
    assert np.bincount(loaded.labels.test).tolist() == [80] * 10
