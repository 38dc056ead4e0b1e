"""Labels, categories, ids and groups are what is written: 01 is not 1, NA is a text, and an empty cell is empty."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.labels import encode
from vflsim.learning.data.table import read_table
from vflsim.learning.data.user import stand_in

CODES = ["01", "1", "001", "1.0", "NA", "nan", "", "Zürich"]


def write(path, frame, text=",", encoding="utf-8"):
    """Write a frame of texts as it is."""
    lines = [text.join(frame.columns), *(text.join(row) for row in frame.itertuples(index=False))]
    written = "\n".join(lines).encode(encoding) + b"\n"
    path.write_bytes(gzip.compress(written) if path.suffix == ".gz" else written)


def frame_of(codes, label=("no", "yes"), rows=40):
    return pd.DataFrame(
        {
            "code": [codes[row % len(codes)] for row in range(rows)],
            "size": [str(row % 7) for row in range(rows)],
            "y": [label[row // 2 % len(label)] for row in range(rows)],
        }
    )


def categories_of(loaded):
    return {each.column: set(each.categories) for each in loaded.facts.categories}


@pytest.mark.parametrize(("ending", "text"), [("csv", ","), ("csv", "\t"), ("csv", ";"), ("csv.gz", ",")])
def test_categories_are_as_they_are_written(tmp_path, ending, text):
    write(tmp_path / f"a.{ending}", frame_of(CODES), text)
    data = Data(file=f"a.{ending}", label="y", categorical=("code",))
    assert categories_of(load(data, Partition(clients=2), folder=tmp_path)) == {"code": {*CODES}}


def test_parquet_has_the_same_categories_and_one_for_all_empty_cells(tmp_path):
    frame = frame_of(CODES).assign(size=lambda each: each["size"].astype(int), amount=[1.5, np.nan, 2.0, np.nan] * 10)
    frame["code"] = [None if row % 16 == 6 else code for row, code in enumerate(frame["code"])]
    frame.to_parquet(tmp_path / "a.parquet")
    data = Data(file="a.parquet", label="y", categorical=("code", "amount"))
    loaded = load(data, Partition(clients=2), folder=tmp_path)
    assert categories_of(loaded) == {"code": {*CODES}, "amount": {"1.5", "", "2.0"}}


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["01", "1", "001"], ("001", "01", "1")),
        (["01059", "02139", "90210"], ("01059", "02139", "90210")),
        (["no", "NA", "yes"], ("NA", "no", "yes")),
        (["10", "9", "1"], ("1", "9", "10")),
        (["true", "false"], ("false", "true")),
        (["1.0", "2.0"], ("1.0", "2.0")),
    ],
)
def test_classes_are_the_labels_as_they_are_written(tmp_path, labels, names):
    write(tmp_path / "a.csv", frame_of(["a", "b"], labels))
    data = Data(file="a.csv", label="y", categorical=("code",))
    loaded = load(data, Partition(clients=2), folder=tmp_path)
    assert loaded.class_names == names
    assert loaded.guessed
    counts = np.bincount(np.concatenate([loaded.labels.train, loaded.labels.test]).astype(int))
    assert counts.tolist() == [(frame_of(["a"], labels)["y"] == name).sum() for name in names]


@pytest.mark.parametrize("text", [",", ";"])
def test_amounts_are_numbers_however_they_are_written(tmp_path, text):
    point = "." if text == "," else ","
    written = [f"{value:.2f}".replace(".", point) for value in (0.5, 1.25, -3, 0.5)] + [f"0{point}5"]
    write(tmp_path / "a.csv", frame_of(["a", "b"], written), text)
    loaded = load(Data(file="a.csv", label="y", drop=("code",)), Partition(clients=1), "float64", tmp_path)
    assert loaded.task == "regression"
    assert {*loaded.labels.train} == {0.5, 1.25, -3.0}


def test_a_gap_among_numbers_is_a_class_only_if_the_scenario_says_so():
    labels = np.array(["0", "1", "NA", "1"])
    with pytest.raises(
        DataError, match=r"row 3 is 'NA' \(1 such labels in all\), and the others are numbers"
    ) as caught:
        encode(labels, "auto", "a.csv")
    assert "task: multiclass" in caught.value.remedy
    assert encode(labels, "multiclass", "a.csv").class_names == ("0", "1", "NA")
    with pytest.raises(DataError, match="3 different labels: 0, 1, NA"):
        encode(labels, "binary", "a.csv")
    with pytest.raises(DataError, match="such as 'NA' in row 3"):
        encode(labels, "regression", "a.csv")


def test_one_amount_written_in_several_ways_is_one():
    with pytest.raises(DataError, match=r"all 3 rows have the same label, 1\.0"):
        encode(np.array(["1", "1.0", "1.00"]), "auto", "a.csv")


def test_an_empty_label_is_refused_and_an_empty_split_too(tmp_path):
    for column in ("y", "part"):
        frame = frame_of(["a", "b"]).assign(part=["train", "test"] * 20)
        frame.loc[3, column] = ""
        write(tmp_path / "a.csv", frame)
        data = Data(file="a.csv", label="y", split_column="part", categorical=("code",))
        with pytest.raises(DataError, match=rf"line 5, column '{column}' .* is empty \(1 in all\)"):
            load(data, Partition(clients=1), folder=tmp_path)


@pytest.mark.parametrize("column", ["code", "y"])
def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path, column):
    frame = frame_of(["a", "b"])
    frame.loc[4, column] = "Zürich"
    write(tmp_path / "a.csv", frame, encoding="latin-1")
    with pytest.raises(DataError, match=r"a\.csv:6: column [13] of the line holds bytes that are not UTF-8") as caught:
        load(Data(file="a.csv", label="y", categorical=("code",)), Partition(clients=1), folder=tmp_path)
    assert "iconv" in caught.value.remedy


def ids_in(tmp_path, mine, others):
    pd.DataFrame({"key": mine, "u": ["1", "2"] * 10}).pipe(lambda each: write(tmp_path / "a.csv", each))
    frame = pd.DataFrame({"key": others, "v": range(20), "y": [row % 2 for row in range(20)]})
    frame.to_parquet(tmp_path / "b.parquet")
    data = Data(parties=("a.csv", "b.parquet"), id="key", label="y", scale="none")
    return load(data, Partition(), folder=tmp_path)


def test_whole_numbers_are_the_same_ids_in_every_format(tmp_path):
    for others in (range(20), [str(row) for row in range(20)]):
        assert sum(ids_in(tmp_path, [str(row) for row in range(20)], others).sizes.values()) == 20


def test_ids_with_leading_zeros_are_texts(tmp_path):
    codes = [f"{row:03d}" for row in range(20)]
    assert sum(ids_in(tmp_path, codes, codes).sizes.values()) == 20
    with pytest.raises(DataError, match="no id stands in every file") as caught:
        ids_in(tmp_path, codes, range(20))
    assert "numbers in one file and text in the other" in caught.value.remedy


def test_groups_are_as_they_are_written(tmp_path):
    frame = frame_of(["a", "b"]).assign(who=[["7", "07", "NA"][row % 3] for row in range(40)])
    write(tmp_path / "a.csv", frame)
    data = Data(file="a.csv", label="y", drop=("code",), group="who", test_fraction=0.3)
    assert load(data, Partition(clients=1), folder=tmp_path).sizes in (
        {"train": 27, "validation": 0, "test": 13},
        {"train": 26, "validation": 0, "test": 14},
    )


def test_a_stand_in_keeps_ids_and_classes_as_they_are_written(tmp_path):
    frame = frame_of(["a"], ["01", "1", "NA"]).drop(columns="code")
    frame = frame.assign(key=[f"{row:03d}" for row in range(40)], part=["train", "test"] * 20)
    write(tmp_path / "a.csv", frame)
    data = Data(parties=("a.csv",), id="key", label="y", split_column="part", task="multiclass")
    whole = load(data, Partition(), folder=tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.csv").write_bytes(stand_in(data, "a.csv", tmp_path))
    other = load(data, Partition(), folder=tmp_path / "b")
    assert (other.rows_digest, other.class_names) == (whole.rows_digest, ("01", "1", "NA"))


@pytest.mark.parametrize("name", ["id", "", "Unnamed: 0", "customer_id", "PassengerId", "index", "UUID"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_column_that_numbers_the_samples_is_not_trained_on_silently(tmp_path, name, ending):
    frame = pd.DataFrame({name: range(100, 140), "size": [row % 7 for row in range(40)], "y": [0, 1] * 20})
    if ending == "npz":
        np.savez(tmp_path / "a.npz", **{key: values.to_numpy() for key, values in frame.items()})
    else:
        getattr(frame, f"to_{ending}")(tmp_path / f"a.{ending}", index=False)
    data = {"file": f"a.{ending}", "label": "y"}
    with pytest.raises(DataError, match=f"column {name!r} has another whole number in each row") as caught:
        load(Data(**data), Partition(clients=1), folder=tmp_path)
    assert f"drop: [{name or repr(name)}]" in caught.value.remedy
    for key, value in (("drop", (name,)), ("id", name)):
        loaded = load(Data(**data, **{key: value}), Partition(clients=1), folder=tmp_path)
        assert loaded.parties[0].feature_names == ("size",)


def test_an_index_that_pandas_kept_is_refused_in_a_partys_file_too(tmp_path):
    frame = pd.DataFrame({"key": range(40), "size": [row % 7 for row in range(40)], "y": [0, 1] * 20})
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "a.csv")
    data = Data(parties=("a.csv",), id="key", label="y")
    with pytest.raises(DataError, match="column '' has another whole number in each row"):
        load(data, Partition(), folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "values"), [("paid", range(40)), ("grid", range(40)), ("id", [1] * 40), ("index", np.arange(40) / 3)]
)
def test_other_columns_are_features(tmp_path, name, values):
    pd.DataFrame({name: values, "y": [0, 1] * 20}).to_csv(tmp_path / "a.csv", index=False)
    loaded = load(Data(file="a.csv", label="y"), Partition(clients=1), folder=tmp_path)
    assert loaded.parties[0].feature_names == (name,)


def test_spaces_beside_a_delimiter_are_no_part_of_a_label_an_id_or_a_category(tmp_path):
    rows = [f"{row:3},{'a' if row % 3 else ' a '}, {row % 7},{' ' if row > 20 else ''}{row % 2}" for row in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["key,town,size,y", *rows]))
    (tmp_path / "b.csv").write_text("\n".join(["key,z", *(f"{row},{row % 5}" for row in range(40))]))
    data = Data(parties=("a.csv", "b.csv"), id="key", label="y", categorical=("town",))
    loaded = load(data, Partition(), folder=tmp_path)
    assert loaded.class_names == ("0", "1")
    assert categories_of(loaded) == {"town": {"a"}}


ROWS = [("age", "net income", "y"), ("31", "1.5", "0"), ("45", "-2.25", "1"), ("27", "3e2", "0")]


def written(path: Path, delimiter: str, decimal: str = ".", quoted: bool = False) -> Path:
    lines = [delimiter.join(f'"{cell}"' if quoted else cell for cell in row) for row in ROWS]
    path.write_text("\n".join([lines[0], *(line.replace(".", decimal) for line in lines[1:])]) + "\n")
    return path


@pytest.mark.parametrize("quoted", [False, True], ids=["plain", "quoted"])
@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(",", "."), (";", "."), ("\t", "."), ("|", "."), (";", ","), ("\t", ",")]
)
def test_delimiter_and_decimal_comma_are_recognised(delimiter: str, decimal: str, quoted: bool, tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "rows.csv", delimiter, decimal, quoted))
    assert table.names == ["age", "net income", "y"]
    assert np.array_equal(table.view("x", ["y"]).values, [[31, 1.5], [45, -2.25], [27, 300]])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a;b,y\n1,0\n", ["a;b", "y"]),  # commas as before, wherever they fit
        ('"a;b;c",y\n"1;2;3",0\n', ["a;b;c", "y"]),
        ('"a, b";y\n1;0\n', ["a, b", "y"]),
        ("a;b\n1,5;0\n", ["a", "b"]),
        ("a\n1\n", ["a"]),
    ],
    ids=repr,
)
def test_what_is_quoted_or_inside_a_number_delimits_nothing(text: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    assert read_table(tmp_path / "rows.csv").names == names


@pytest.mark.parametrize(
    ("cells", "value"),
    [(["1,500", "2,250"], "1,500"), (["1,5", "2.5"], "1,5")],
    ids=["thousands or decimals", "both signs"],
)
def test_a_comma_that_could_mean_two_things_is_refused_with_a_remedy(
    cells: list[str], value: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a;y\n" + "".join(f"{cell};0\n" for cell in cells))
    with pytest.raises(DataError, match="which is not a number") as caught:
        read_table(tmp_path / "rows.csv").view("x", ["y"])
    assert repr(value) in str(caught.value)
    assert "write it with a decimal point" in str(caught.value)
