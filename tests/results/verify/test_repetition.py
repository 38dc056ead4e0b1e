"""The first difference between a run and its repetition is named: file, row, column, values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from toy_runs import toy_run

from vflsim.results import run_folder, write_run
from vflsim.results.store.run import StoredRun
from vflsim.results.verify.repetition import differences, first_differences

NAN, NEGATIVE = float("nan"), -0.0
NOTES: dict[str, list[Any]] = {
    "number": [0, 1, 2],
    "text": ["a", "b", None],
    "x": [NAN, 0.5, 0.25],
    "of": [[1], [], [2]],
}
WEIGHTS = {"server.0.weight": torch.tensor([[1.0, NAN], [2.0, 3.0]]), "server.0.bias": torch.zeros(0)}


def run_in(folder: Path, notes: dict[str, list[Any]] = NOTES, weights: Any = None, **facts: Any) -> StoredRun:
    """A run with a table of its protocol's own; other than usual where it is said."""
    tables, info = toy_run("wait", 0, horizon=10)
    place = run_folder(folder, "wait", 0)
    info = info.model_copy(update=facts)
    write_run(place, tables, WEIGHTS if weights is None else weights, info, extra={"notes": pa.table(notes)})
    return StoredRun(place, info)


@pytest.fixture
def stored(tmp_path: Path) -> StoredRun:
    return run_in(tmp_path / "stored")


def test_equal_runs_do_not_differ(stored: StoredRun, tmp_path: Path) -> None:
    again = run_in(tmp_path / "again", wall_clock_s=99.0, versions={"torch": "9"})
    assert [*differences(stored, again)] == []
    assert [*first_differences(stored, again)] == []


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ({"text": ["a", "c", None]}, "notes, row 1 (number 1): text is 'b', computed again 'c'"),
        ({"text": ["a", "b", "c"]}, "notes, row 2 (number 2): text is None, computed again 'c'"),
        ({"number": [0, 5, 2], "x": [NAN, NAN, NAN]}, "notes, row 1: number is 1, computed again 5"),
        ({"x": [NEGATIVE, 0.5, 0.25]}, "notes, row 0 (number 0): x is nan, computed again -0.0"),
        ({"of": [[1], [3], [2]]}, "notes, row 1 (number 1): of is [], computed again [3]"),
        ({name: values[:2] for name, values in NOTES.items()}, "notes: 3 rows, computed again 2"),
        ({"more": [1, 2, 3]}, "notes: columns are number, text, x, of; computed again number, text, x, of, more"),
    ],
)
def test_the_first_value_that_differs_is_named(
    notes: dict[str, list[Any]], sentence: str, stored: StoredRun, tmp_path: Path
) -> None:
    assert [*differences(stored, run_in(tmp_path / "again", NOTES | notes))] == [sentence]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"server.0.weight": torch.tensor([[1.0, NAN], [2.0, 4.0]])},
            "weights: server.0.weight[1, 1] is 3.0, computed again 4.0",
        ),
        (
            {"server.0.bias": torch.zeros(1)},
            "weights: server.0.bias is (0,) of torch.float32, computed again (1,) of torch.float32",
        ),
        (
            {"more": torch.zeros(1)},
            "weights: tensors are server.0.bias, server.0.weight; computed again more, server.0.bias, server.0.weight",
        ),
    ],
)
def test_the_first_weight_that_differs_is_named(
    change: dict[str, torch.Tensor], sentence: str, stored: StoredRun, tmp_path: Path
) -> None:
    assert [*differences(stored, run_in(tmp_path / "again", weights=WEIGHTS | change))] == [sentence]


def test_another_fact_of_the_run_is_named(stored: StoredRun, tmp_path: Path) -> None:
    found = [*differences(stored, run_in(tmp_path / "again", stop_reason="time", threads=3))]
    assert "run.json: threads is 1, computed again 3" in found


def test_files_that_only_one_has_are_named(stored: StoredRun, tmp_path: Path) -> None:
    again = run_in(tmp_path / "again")
    (stored.folder / "notes.parquet").unlink()
    (again.folder / "rounds.parquet").unlink()
    assert [*differences(stored, again)] == [
        "notes.parquet is missing, but not when computed again",
        "rounds.parquet is there, but not when computed again",
    ]


def test_the_same_values_in_other_bytes_are_told_apart(stored: StoredRun, tmp_path: Path) -> None:
    again = run_in(tmp_path / "again")
    pq.write_table(pa.table(NOTES), stored.folder / "notes.parquet", compression="none")
    assert [*differences(stored, again)] == ["notes.parquet: the same values in other bytes"]


def test_a_damaged_file_is_named(stored: StoredRun, tmp_path: Path) -> None:
    (stored.folder / "weights.safetensors").write_bytes(b"nothing")
    (stored.folder / "notes.parquet").write_bytes(b"nothing")
    found = [*differences(stored, run_in(tmp_path / "again"))]
    assert [each.split(":")[0] for each in found] == [
        "notes.parquet cannot be compared",
        "weights.safetensors cannot be compared",
    ]
