"""Damaged and unsuitable CSV, Parquet, NPZ and MATLAB files: each ends in one DataError that says where and what."""

import gzip
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from vflsim.errors import DataError
from vflsim.learning.data import arrays
from vflsim.learning.data.arrays import read_views
from vflsim.learning.data.catalogue_readers import read_handwritten
from vflsim.learning.data.spec import Data
from vflsim.learning.data.user import read_file

GOOD = "age,income,label\n30,1.5,0\n40,2.5,1\n"


def _read(
    path: Path, label: str = "label", group: str | None = None, drop: tuple[str, ...] = (), id: str | None = None
):
    return read_file(Data(file=str(path), label=label, group=group, drop=drop, id=id), path)


def _csv(tmp_path: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "npz"])
def test_every_format_gives_the_same_features_and_labels(tmp_path, ending):
    frame = pd.DataFrame({"age": [30, 40], "income": [1.5, 2.5], "ill": [True, False], "label": [0, 1]})
    path = tmp_path / f"data.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "npz":
        np.savez(path, **{name: frame[name].to_numpy() for name in frame})
    else:
        frame.to_csv(path, index=False)
    raw = _read(path)
    assert raw.views[0].names == ("age", "income", "ill")
    np.testing.assert_array_equal(raw.views[0].values, [[30, 1.5, 1], [40, 2.5, 0]])
    np.testing.assert_array_equal(raw.target.astype(int), [0, 1])


def test_id_group_and_dropped_columns_are_no_features(tmp_path):
    path = _csv(tmp_path, "id,who,a,b,y\n1,p,5,6,0\n2,q,7,8,1\n")
    raw = _read(path, "y", group="who", drop=("b",), id="id")
    assert raw.views[0].names == ("a",)
    assert raw.groups is not None
    assert raw.groups.tolist() == ["p", "q"]


def test_windows_line_ends_quotes_and_a_byte_order_mark_are_read(tmp_path):
    raw = _read(_csv(tmp_path, '\ufeff"age","label"\r\n30,"a,b"\r\n40,c\r\n'))
    assert raw.views[0].names == ("age",)
    assert raw.target.tolist() == ["a,b", "c"]


def test_decimals_are_rounded_correctly(tmp_path):
    text = "0.30000000000000004"
    assert _read(_csv(tmp_path, f"a,label\n{text},0\n1,1\n")).views[0].values[0, 0] == float(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv: cannot be read: Empty CSV file"),
        ("age,label\n", "data.csv: holds no rows"),
        ("age,income,label\n30,1.5,0\n40,1\n", "line 3: Expected 3 columns, got 2"),
        ("age,income,label\n30,1.5,0\n40,1,0,9\n", "line 3: Expected 3 columns, got 4"),
        ("age,age,label\n1,2,0\n", "column 'age' stands there twice"),
        ("label\n0\n1\n", "has no feature column left"),
        ("age,label\n30,0\n,1\nnan,1\n", r"line 3, column 'age' is nan \(2 such values in all\)"),
        ("age,label\n30,0\n1,1\n-inf,1\n", "line 4, column 'age' is -inf"),
        ("age,label\n30,0\nold,1\n", "line 3, column 'age' is 'old', which is not a number"),
        ("age,label\n2020-01-01,0\n2020-01-02,1\n", "line 2, column 'age' is .*, which is not a number"),
        ("age,gap,label\n30,,0\n40,,1\n", "column 'gap' is empty"),
        ("age,label\n30,a\n40,\n", r"line 3, column 'label' \(the label\) is empty"),
        (b"age,label\n1,a\n2,\xff\xfe\n", "data.csv:3: column 2 of the line holds bytes that are not UTF-8"),
    ],
)
def test_an_unsuitable_csv_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        _read(_csv(tmp_path, text))
    assert "data.csv" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_label_column_lists_near_matches(tmp_path):
    with pytest.raises(DataError, match=r"has no column 'lable' \(the label\)") as caught:
        _read(_csv(tmp_path, GOOD), "lable")
    assert caught.value.allowed == "near matches: 'label'"
    with pytest.raises(DataError) as caught:
        _read(_csv(tmp_path, GOOD), "zzz")
    assert caught.value.allowed == "one of 'age', 'income', 'label'"


def test_a_column_to_drop_must_be_there(tmp_path):
    with pytest.raises(DataError, match="has no column 'incom' to drop") as caught:
        _read(_csv(tmp_path, GOOD), drop=("incom",))
    assert "'income'" in caught.value.allowed


def test_repeated_ids_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"id 7 stands in more than one row \(1 rows repeat an id\)"):
        _read(_csv(tmp_path, "id,a,label\n7,1,0\n8,1,1\n7,2,1\n"), id="id")


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "absent.npz"])
def test_an_absent_file_is_said_to_be_absent(tmp_path, name):
    with pytest.raises(DataError, match=f"{name}: no such file"):
        _read(tmp_path / name)


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"cannot tell the format from '\.xlsx'"):
        _read(tmp_path / "data.xlsx")


def test_a_truncated_gzipped_csv_is_refused(tmp_path):
    whole = gzip.compress(b"a,label\n" + b"1.234,0\n2.5,1\n" * 5000)
    with pytest.raises(DataError, match="cannot be read"):
        _read(_csv(tmp_path, whole[: len(whole) // 2], "data.csv.gz"))


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense PAR1", b"PAR1"])
def test_a_damaged_parquet_file_is_refused(tmp_path, content):
    with pytest.raises(DataError, match=r"data\.parquet: cannot be read"):
        _read(_csv(tmp_path, content, "data.parquet"))


def test_parquet_columns_of_other_types_are_refused_by_name(tmp_path):
    for value in (date(2020, 1, 1), [1, 2], "x"):
        pd.DataFrame({"odd": [value], "label": [1]}).to_parquet(tmp_path / "data.parquet")
        with pytest.raises(DataError, match=r"column 'odd' (is|.a feature. is of type list)"):
            _read(tmp_path / "data.parquet")


def test_parquet_gaps_and_categories_are_understood(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "label": pd.Categorical(["x", "y"])})
    frame.to_parquet(tmp_path / "data.parquet")
    assert _read(tmp_path / "data.parquet").target.tolist() == ["x", "y"]
    pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "label": [0, 1]}).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(DataError, match="row 2, column 'a' is nan"):
        _read(tmp_path / "data.parquet")


def _npz(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "data.npz", **arrays)
    return tmp_path / "data.npz"


def test_npz_arrays_become_views_tables_and_images(tmp_path):
    path = _npz(
        tmp_path,
        label=np.array([[0], [1]]),
        table=np.ones((2, 3)),
        flat=np.ones(2),
        grey=np.ones((2, 4, 5)),
        rgb=np.ones((2, 3, 4, 5)),
    )
    shapes = {view.name: (view.values.shape[1:], view.pixels) for view in _read(path).views}
    assert shapes == {
        "table": ((3,), False),
        "flat": ((1,), False),
        "grey": ((1, 4, 5), True),
        "rgb": ((3, 4, 5), True),
    }


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array([{}, 1], dtype=object), "label": np.array([0, 1])}, "cannot be read.*they could run code"),
        ({"x": np.ones((3, 2)), "label": np.array([0, 1])}, "array 'label' has 2 rows, 'x' has 3"),
        ({"x": np.ones((2, 2))}, r"has no array 'label' \(the label\)"),
        ({"label": np.array([0, 1])}, "has no features left"),
        ({"x": np.ones((2, 2)), "label": np.ones((2, 2))}, r"array 'label' \(the label\) has shape \(2, 2\)"),
        ({"x": np.ones((2, 2)), "label": np.array([0, 1]), "n": np.array(3)}, "array 'n' is a single value"),
        ({"x": np.array([[1, np.nan], [1, 1]]), "label": np.array([0, 1])}, "row 1, column 'x1' is nan"),
        ({"x": np.array([["a"], ["b"]]), "label": np.array([0, 1])}, "features are of type <U1"),
        ({"x": np.ones((2, 2), complex), "label": np.array([0, 1])}, "features are of type complex128"),
        ({"x": np.ones((2, 1, 1, 1, 1)), "label": np.array([0, 1])}, "has shape"),
        ({"x": np.ones((0, 2)), "label": np.ones(0)}, "holds no rows"),
        ({"x": np.ones((2, 0)), "label": np.ones(2)}, "holds no features"),
    ],
)
def test_an_unsuitable_npz_is_refused(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message) as caught:
        _read(_npz(tmp_path, **arrays))
    assert "data.npz" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 rubbish", b"\x80\x04N.", b"\x93NUMPY"])
def test_an_unreadable_npz_is_refused(tmp_path, content):
    with pytest.raises(DataError, match=r"data\.npz: cannot be read"):
        _read(_csv(tmp_path, content, "data.npz"))


def test_a_truncated_npz_is_refused(tmp_path):
    path = _npz(tmp_path, x=np.ones((50, 50)), label=np.arange(50) % 2)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match="cannot be read"):
        _read(path)


def test_an_npz_with_flipped_bytes_is_refused(tmp_path):
    path = _npz(tmp_path, x=np.ones((50, 50)), label=np.arange(50) % 2)
    content = bytearray(path.read_bytes())
    content[500:520] = b"?" * 20
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read.*CRC"):
        _read(path)


def _cells(*matrices: np.ndarray) -> np.ndarray:
    cells = np.empty((1, len(matrices)), dtype=object)
    cells[0, :] = matrices
    return cells


def test_matlab_views_are_read_in_order_with_names_by_width(tmp_path, rng):
    views = [rng.normal(size=(4, width)) for width in (76, 6, 5)]
    scipy.io.savemat(tmp_path / "m.mat", {"X": _cells(*views), "Y": np.array([[1], [2], [1], [2]])})
    raw = read_handwritten([tmp_path / "m.mat"])
    assert [view.name for view in raw.views] == ["fou", "mor", "view3"]
    np.testing.assert_array_equal(raw.views[1].values, views[1])
    assert raw.target.tolist() == [1, 2, 1, 2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("label", ["Y", "y"])
def test_matlab_labels_may_be_called_either_way(tmp_path, label):
    scipy.io.savemat(tmp_path / "m.mat", {"X": _cells(np.ones((2, 3))), label: [5, 6]})
    views, target = read_views(tmp_path / "m.mat")
    assert [view.shape for view in views] == [(2, 3)]
    assert target.tolist() == [5, 6]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": _cells(np.ones((2, 3)), np.ones((3, 3))), "Y": [1, 2]}, r"view 2 has shape \(3, 3\).*2 labels"),
        ({"X": np.ones((2, 3)), "Y": [1, 2]}, "variable 'X' is not a cell array"),
        ({"Y": [1, 2]}, "has no variable 'X'"),
        ({"X": _cells(np.ones((2, 3)), np.array([["a"], ["b"]])), "Y": [1, 2]}, "view 2"),
        ({"X": _cells(np.array([[1, np.inf], [1, 1]]), np.ones((2, 2))), "Y": [1, 2]}, "view 1: row 1.*inf"),
    ],
)
def test_an_unsuitable_matlab_file_is_refused(tmp_path, content, message):
    scipy.io.savemat(tmp_path / "m.mat", content)
    with pytest.raises(DataError, match=message):
        read_handwritten([tmp_path / "m.mat"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("content", [b"", b"garbage" * 50, b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_matlab_garbage_is_refused(tmp_path, content):
    path = tmp_path / "m.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"m\.mat: (cannot be read|has no variable)"):
        read_views(path)


CRASHES = [[(225, 4)], [(225, 1)], [(672, 32)]]
"""Bytes and bits of a small file that SciPy 1.17 dies of."""


def _small_matlab_file(path: Path, compressed: bool = False) -> bytearray:
    rng = np.random.default_rng(0)
    cells = _cells(rng.normal(size=(12, 3)), rng.integers(0, 255, (12, 4)).astype(np.uint8))
    scipy.io.savemat(path, {"X": cells, "Y": np.arange(12) % 3}, do_compression=compressed)
    return bytearray(path.read_bytes())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("flips", CRASHES)
def test_a_matlab_file_that_crashes_its_reader_is_refused(tmp_path, flips):
    path = tmp_path / "m.mat"
    content = _small_matlab_file(path)
    for place, bits in flips:
        content[place] ^= bits
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"m\.mat: cannot be read"):
        read_views(path)


LATE = """\
import time, runpy, sys
time.sleep(1.2)
runpy.run_path({program!r}, run_name="__main__")
"""
"""The reader on a machine that has other things to do first."""
ENDLESS = """\
import itertools, sys
sys.path.insert(0, {folder!r})
import mat_program
mat_program.loadmat = lambda *_, **__: sum(0 for _ in itertools.count())
mat_program.main(*sys.argv[1:])
"""


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Read a small file by this program, which may take a second of the processor."""

    def read(program: str):
        _small_matlab_file(tmp_path / "m.mat")
        own = arrays._PROGRAM
        (tmp_path / "program.py").write_text(program.format(program=str(own), folder=str(own.parent)))
        monkeypatch.setattr(arrays, "_PROGRAM", tmp_path / "program.py")
        monkeypatch.setattr(arrays, "_SECONDS", 0.5)
        return read_views(tmp_path / "m.mat")

    return read


def test_a_matlab_file_is_read_on_a_busy_machine(reader):
    _, target = reader(LATE)
    assert len(target) == 12


def test_a_matlab_file_that_occupies_its_reader_is_refused(reader):
    with pytest.raises(DataError, match=r"m\.mat: cannot be read: reading it takes more than 1 s of the processor"):
        reader(ENDLESS)


def test_a_reader_that_never_ends_is_stopped(reader, monkeypatch):
    monkeypatch.setattr(arrays, "_WAITING", 1)
    with pytest.raises(DataError, match=r"m\.mat: cannot be read: reading it takes more than 1 s"):
        reader("import time\ntime.sleep(600)\n")


@pytest.mark.slow
def test_a_matlab_file_that_needs_too_much_memory_is_refused(tmp_path, monkeypatch):
    cells = _cells(np.zeros((2_000_000, 20)))  # packed, it has 0.3 MB
    scipy.io.savemat(tmp_path / "m.mat", {"X": cells, "Y": np.zeros(2_000_000, np.int8)}, do_compression=True)
    monkeypatch.setattr(arrays, "machine_memory", lambda: 6e8)
    with pytest.raises(DataError, match="would need more than 150,000,000 bytes of memory"):
        read_views(tmp_path / "m.mat")


def test_a_matlab_file_of_version_7_3_is_named(tmp_path):
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "m.mat").write_bytes(head.ljust(512, b"\x00") + b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(DataError, match=r"version 7\.3 \(HDF5\)(.|\n)*'-v7'"):
        read_views(tmp_path / "m.mat")


def test_matlab_cells_of_anything_but_numbers_are_refused(tmp_path):
    for cell in ({"a": 1}, _cells(np.ones(2)), scipy.sparse.eye_array(2).tocsc()):
        cells = np.empty((1, 1), dtype=object)
        cells[0, 0] = cell
        scipy.io.savemat(tmp_path / "m.mat", {"X": cells, "Y": [1, 2]})
        with pytest.raises(DataError, match="view 1 is no matrix of numbers"):
            read_views(tmp_path / "m.mat")
