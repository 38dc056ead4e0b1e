"""Stand-ins for files: rows, shapes and splits are those of the files; features and labels are not."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.user import stand_in

ROWS = 24
SPLITS = ["train"] * 16 + ["validation"] * 4 + ["test"] * 4


@pytest.fixture
def data(write_csv, tmp_path: Path) -> Data:
    """Three parties in three formats; one has a gap, another rows in another order."""
    rng = np.random.default_rng(3)
    write_csv("bank.csv", "id,balance,age,note", [(k, 10 * k, "" if k == 2 else k, "text") for k in range(ROWS)])
    shop = {"id": np.arange(ROWS)[::-1], "visits": rng.normal(size=ROWS), "basket": np.arange(ROWS)}
    pq.write_table(pa.table(shop), tmp_path / "shop.parquet")
    np.savez(tmp_path / "scan.npz", id=np.arange(ROWS), scan=rng.integers(0, 9, (ROWS, 5, 6)))
    labels = [(k, "yes" if k % 3 else "no", SPLITS[k * 7 % ROWS]) for k in range(ROWS)]
    write_csv("labels.csv", "id,good,part", labels)
    return Data(
        parties=("bank.csv", "shop.parquet", "scan.npz"),
        labels="labels.csv",
        label="good",
        id="id",
        drop=("note",),
        missing="indicator",
        split_column="part",
    )


def replaced(data: Data, names: list[str], tmp_path: Path) -> Path:
    """A folder with stand-ins of these files, and the other files themselves."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in (*(data.parties or ()), "labels.csv"):
        source = (tmp_path / name).read_bytes()
        (folder / name).write_bytes(stand_in(data, name, tmp_path) if name in names else source)
    return folder


def test_a_client_reads_its_own_file_and_stand_ins_as_it_reads_all_files(data: Data, tmp_path: Path) -> None:
    whole = load(data, Partition(), "float64", tmp_path)
    own = load(data, Partition(), "float64", replaced(data, ["bank.csv", "scan.npz", "labels.csv"], tmp_path))
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(own.parties[1], split), getattr(whole.parties[1], split))
        assert not getattr(own.parties[0], split)[:, :2].any()
        assert not getattr(own.parties[2], split).any()
    assert [party.feature_shape for party in own.parties] == [party.feature_shape for party in whole.parties]
    assert [party.feature_names for party in own.parties] == [party.feature_names for party in whole.parties]
    assert own.rows_digest == whole.rows_digest
    assert own.classes == whole.classes
    assert own.class_names == whole.class_names


def test_other_ids_in_a_stand_in_are_other_rows(data: Data, tmp_path: Path) -> None:
    whole = load(data, Partition(), "float64", tmp_path)
    folder = replaced(data, ["bank.csv"], tmp_path)
    text = (folder / "bank.csv").read_text()
    (folder / "bank.csv").write_text(text[: text.rindex("\n", 0, -1) + 1])  # a customer who came later
    assert load(data, Partition(), "float64", folder).rows_digest != whole.rows_digest


def test_the_server_has_labels_of_the_same_rows(data: Data, tmp_path: Path) -> None:
    whole = load(data, Partition(), "float64", tmp_path)
    own = load(data, Partition(), "float64", replaced(data, ["bank.csv", "shop.parquet", "scan.npz"], tmp_path))
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(own.labels, split), getattr(whole.labels, split))
        assert not any(getattr(party, split)[:, :1].any() for party in own.parties)


def test_labels_stand_in_by_turns(data: Data, tmp_path: Path) -> None:
    assert stand_in(data, "labels.csv", tmp_path).decode().splitlines()[:4] == [
        '"id","good","part"',
        '"0","no","train"',
        '"1","yes","train"',
        '"2","no","train"',
    ]
    amounts = data.model_copy(update={"task": "regression"})
    (tmp_path / "labels.csv").write_text("id,good\n" + "".join(f"{k},{k / 7}\n" for k in range(ROWS)))
    lines = stand_in(amounts.model_copy(update={"split_column": None}), "labels.csv", tmp_path).decode().splitlines()
    assert lines[1:5] == ['"0",0', '"1",0.5', '"2",1', '"3",0']


def test_a_packed_file_stands_in_packed(write_csv, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,u\n7,1.5\n8,2.5\n"))
    data = Data(parties=("a.csv.gz",), labels="l.csv", label="y", id="id")
    assert gzip.decompress(stand_in(data, "a.csv.gz", tmp_path)) == b'"id","u"\n"7",0\n"8",0\n'


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({"split_column": None}, "labels.csv", "the labels .* decide which rows train"),
        ({"categorical": ("age",)}, "bank.csv", "the categories of column 'age' decide the shapes of models"),
        ({"scale": "pooled"}, "bank.csv", "the pixels of all parties are scaled together"),
        ({}, "bnk.csv", "bnk.csv is no file of the scenario's data"),
        ({"parties": None, "file": "bank.csv"}, "bank.csv", "no file of each party"),
    ],
)
def test_what_others_need_more_of_is_refused(changes, name, message, data: Data, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as caught:
        stand_in(data.model_copy(update=changes), name, tmp_path)
    assert caught.value.allowed
