"""Tables of others are checked where they are read: types, missing values, infinities, names."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Ended

from vflsim.errors import ResultsError
from vflsim.results.read import Results
from vflsim.results.store.schema import TableName, range_of_column

Vflsim = Callable[..., Ended]
TITLE = "\x1b]0;gotcha\x07"
RUN = "wait/seed-0"


@pytest.fixture
def received(toy_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_folder, tmp_path / "received"))


def replace(folder: Path, name: str, column: str, values: Callable[[pa.ChunkedArray], Any], new: str = "") -> None:
    """Replace a column of a table, or its name."""
    path = folder / RUN / f"{name}.parquet"
    table = pq.read_table(path, partitioning=None)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, new or column, values(table.column(place))), path)


def in_row_1(value: float) -> Callable[[pa.ChunkedArray], pa.Array]:
    def change(values: pa.ChunkedArray) -> pa.Array:
        numbers = values.to_pylist()
        return pa.array([*numbers[:1], value, *numbers[2:]], values.type)

    return change


def as_text(values: pa.ChunkedArray) -> pa.Array:
    return pa.array(["high"] * len(values))


@pytest.mark.parametrize("table", ["metrics", "rounds", "events"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "text"])
def test_a_column_holds_only_what_it_may(table: TableName, value: float | str, received: Path) -> None:
    path = received / RUN / f"{table}.parquet"
    whole = path.read_bytes()
    for field in pq.read_schema(path):
        bounds = range_of_column(table, field.name)
        if isinstance(value, str):
            allowed = False
        elif pa.types.is_floating(field.type):
            allowed = bounds.absent if math.isnan(value) else bounds.infinite
        else:
            continue
        replace(received, table, field.name, as_text if isinstance(value, str) else in_row_1(value))
        read = Results.open(received).run("wait", 0)
        if allowed:
            read.table(table)
        else:
            with pytest.raises(ResultsError) as caught:
                read.table(table)
            assert caught.value.where.endswith(f"{RUN}/{table}.parquet")
            assert caught.value.what.startswith(f"damaged: {field.name} ")
            assert isinstance(value, str) or f"is {value:g} in row 1" in caught.value.what
        path.write_bytes(whole)


CHANGES: dict[str, tuple[tuple[Any, ...], str]] = {
    "a column's name that steers": (
        ("metrics", "test_accuracy", lambda values: values, f"test_{TITLE}"),
        r"the column 'test_\x1b]0;gotcha\x07' has control characters",
    ),
    "no time": (
        ("metrics", "time_s", in_row_1(float("nan"))),
        "time_s is nan in row 1; allowed: finite and at least 0",
    ),
    "an endless round": (("rounds", "end_s", in_row_1(float("inf"))), "end_s is inf in row 1"),
    "text for a metric": (
        ("metrics", "test_accuracy", as_text),
        "test_accuracy holds values of type string; allowed: double",
    ),
    "no value": (
        ("metrics", "round", lambda values: pa.nulls(len(values), pa.int64())),
        "round lacks a value in row 0",
    ),
    "a kind of event that steers": (
        ("events", "kind", lambda values: pa.array([TITLE] * len(values)).dictionary_encode()),
        r"kind has the name '\x1b]0;gotcha\x07', with control characters",
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("command", ["compare", "report", "plot", "trace"])
@pytest.mark.parametrize("name", CHANGES)
def test_no_command_ends_in_a_traceback(name: str, command: str, received: Path, vflsim: Vflsim) -> None:
    change, sentence = CHANGES[name]
    replace(received, *change)
    ended = vflsim(command, received, *(("--protocol", "wait", "--seed", 0) if command == "trace" else ()))
    assert "\x1b" not in ended.out + ended.err
    if ended.status == 0:  # it needs no such table
        assert command in ("compare", "trace", "report")
        return
    assert ended.status == 2
    assert sentence in " ".join(ended.err.split())
    assert f"{RUN}/{change[0]}.parquet" in ended.err


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
def test_a_report_holds_no_control_characters(received: Path, vflsim: Vflsim) -> None:
    page = received / RUN / "run.json"
    said = page.read_text().replace('"status": "finished"', '"status": "failed"')
    said = said.replace('"error": null', '"error": "first \\u001b]0;gotcha\\u0007"')
    page.write_text(said.replace('"stop_reason": "rounds"', '"stop_reason": null'))
    ended = vflsim("report", received)
    assert ended.status == 0, ended.err
    written = (received / "report.html").read_bytes()
    assert b"gotcha" in written
    assert b"\x1b" not in written
    assert b"\x07" not in written
