"""Columns of every Parquet type, in every role: read, or refused with file, key, column, type, and remedy."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vflsim.errors import DataError
from vflsim.learning.data.raw import RawData
from vflsim.learning.data.spec import Data
from vflsim.learning.data.user import read_file, read_parties

ROWS, FAR = 6, "a far time"


def column(kind: pa.DataType, *values: object) -> pa.Array:
    return pa.array([values[row % len(values)] for row in range(ROWS)], kind)


DAY = datetime.date(2024, 2, 29)
NESTED = {
    "list": column(pa.list_(pa.int64()), [1, 2], [3]),
    "large list": column(pa.large_list(pa.string()), ["a"], None),
    "fixed list": column(pa.list_(pa.float32(), 2), [1.0, 2.0], [3.0, 4.0]),
    "struct": column(pa.struct({"a": pa.int64()}), {"a": 1}, {"a": 2}),
    "map": column(pa.map_(pa.string(), pa.int64()), [("k", 1)], []),
    "deep": column(pa.list_(pa.list_(pa.struct({"a": pa.list_(pa.int8())}))), [[{"a": [1]}]], []),
    "wide": column(pa.struct({f"field{k}": pa.int8() for k in range(300)}), {"field1": 1}, {}),
}
WORDS = {
    "date": column(pa.date32(), DAY, datetime.date(2023, 1, 1)),
    "timestamp": column(pa.timestamp("ns", "UTC"), 0, 2**62),
    FAR: column(pa.timestamp("s"), 2**50, 0),
    "time": column(pa.time64("us"), datetime.time(1), datetime.time(2)),
    "duration": column(pa.duration("ms"), 1, 2),
    "binary": column(pa.binary(), b"\xff", b"a"),
    "fixed binary": column(pa.binary(2), b"\xff\x00", b"ab"),
    "text": column(pa.string(), "a", "b"),
    "large text": column(pa.large_string(), "a", "b"),
    "text view": column(pa.string_view(), "a", "b"),
    "encoded text": column(pa.string(), "a", "b").dictionary_encode(),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), column(pa.binary(16), b"a" * 16, b"b" * 16)),
}
NUMBERS = {
    "int8": column(pa.int8(), 1, -2),
    "uint64": column(pa.uint64(), 2**64 - 1, 0),
    "half": pa.array(np.arange(ROWS, dtype=np.float16)),
    "bool": column(pa.bool_(), True, False),
    "decimal": column(pa.decimal128(38, 2), decimal.Decimal("1.25"), decimal.Decimal("-3")),
    "large decimal": column(pa.decimal256(70, 2), decimal.Decimal("1.25"), decimal.Decimal("1" * 60)),
    "encoded numbers": column(pa.int64(), 5, 7).dictionary_encode(),
}
EMPTY = {"null": pa.nulls(ROWS)}
ROLES = ("feature", "categorical", "missing", "label", "group", "id")


def saved(folder: Path, what: pa.Array, role: str) -> dict[str, Any]:
    """A file with this column beside others; the keys of a scenario that give it a role."""
    table = {"x": pa.array(range(ROWS)), "y": pa.array([0, 1] * (ROWS // 2)), "odd": what}
    pq.write_table(pa.table(table), folder / "odd.parquet")
    said = {"file": "odd.parquet", "label": "y"}
    if role == "categorical":
        return said | {"categorical": ["odd"]}
    if role == "missing":
        return said | {"missing": "mean"}
    return said | ({} if role == "feature" else {role: "odd"})


def read(folder: Path, said: dict[str, Any]) -> RawData:
    return read_file(Data(**said), folder / said["file"])


def refusal(folder: Path, said: dict[str, Any]) -> DataError:
    with pytest.raises(DataError) as caught:
        read(folder, said)
    error = caught.value
    assert str(folder / "odd.parquet") in str(error)
    assert "'odd'" in error.what
    assert error.allowed
    assert error.remedy
    assert len(str(error)) < 700
    return error


@pytest.mark.sampled(21)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", NESTED)
def test_nested_columns_are_refused_in_every_role(name: str, role: str, tmp_path: Path) -> None:
    kind = str(NESTED[name].type).partition("<")[0]
    error = refusal(tmp_path, saved(tmp_path, NESTED[name], role))
    assert f"is of type {kind}<" in error.what
    assert ("features" if role == "missing" else role) in f"{error.what} features"


@pytest.mark.parametrize("role", ["feature", "missing"])
@pytest.mark.parametrize("name", [*WORDS, *EMPTY])
def test_columns_of_other_things_are_no_features(name: str, role: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, saved(tmp_path, (WORDS | EMPTY)[name], role))
    assert "drop: [odd]" in error.remedy


def test_times_that_python_cannot_write_are_refused(tmp_path: Path) -> None:
    refusal(tmp_path, saved(tmp_path, WORDS[FAR], "categorical"))


@pytest.mark.parametrize("name", [*(name for name in WORDS if name != FAR), *NUMBERS, *EMPTY])
def test_plain_columns_are_categories(name: str, tmp_path: Path) -> None:
    what = (WORDS | NUMBERS | EMPTY)[name]
    (view,) = read(tmp_path, saved(tmp_path, what, "categorical")).views
    assert len(view.categories[-1]) == len(set(view.values[:, -1].tolist()))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_every_type_are_features(name: str, tmp_path: Path) -> None:
    (view,) = read(tmp_path, saved(tmp_path, NUMBERS[name], "feature")).views
    assert view.values[:, -1].tolist() == [float(each) for each in NUMBERS[name].to_pylist()]


@pytest.mark.parametrize("role", ["label", "group", "id"])
@pytest.mark.parametrize("name", [*WORDS, *NUMBERS, *EMPTY])
def test_other_roles_read_a_column_or_refuse_it(name: str, role: str, tmp_path: Path) -> None:
    said = saved(tmp_path, (WORDS | NUMBERS | EMPTY)[name], role)
    try:
        read(tmp_path, said)
    except DataError as error:
        if "stands in more than one row" not in error.what:
            refusal(tmp_path, said)


@pytest.mark.parametrize("role", ["feature", "categorical", "label", "group", "id"])
def test_text_that_is_not_utf8_is_refused(role: str, tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), ROWS, column(pa.binary(), b"\xff\xfe", b"ab").buffers())
    error = refusal(tmp_path, saved(tmp_path, broken, role))
    assert "UTF-8" in str(error) or role == "feature"


def test_parties_files_refuse_nested_columns(tmp_path: Path) -> None:
    for name, extra in (("a", {"y": pa.array([0, 1] * 3)}), ("b", {"odd": NESTED["struct"]})):
        pq.write_table(pa.table({"id": pa.array(range(ROWS)), name: pa.array(range(ROWS)), **extra}), tmp_path / name)
        (tmp_path / name).rename(tmp_path / f"{name}.parquet")
    data = Data(parties=("a.parquet", "b.parquet"), id="id", label="y", categorical=("odd",))
    with pytest.raises(DataError, match=r"column 'odd' \(categorical\) is of type struct<a: int64>"):
        read_parties(data, tmp_path)
