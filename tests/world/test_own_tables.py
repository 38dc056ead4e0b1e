"""Tables that protocols record: what can be written, what is refused when it is added, and values that come later."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from vflsim.errors import ProtocolError
from vflsim.learning.execution.operations import Handle
from vflsim.world.own_tables import OwnTables


def recorded(*values: Any) -> pa.Table:
    """The column ``it`` of a table with a row for each value."""
    tables = OwnTables()
    for value in values:
        tables.add("notes", {"time_s": 0.5, "party": "server"}, {"it": value})
    assert tables.settle() is None
    return tables.tables()["notes"]["it"]


def handle(value: Any, dtype: torch.dtype = torch.float32) -> Handle[Any]:
    made = Handle[Any]((), dtype)
    made.set(value)
    return made


WRITTEN: dict[str, tuple[list[Any], Any, list[Any]]] = {
    "int": ([1, -2], pa.int64(), [1, -2]),
    "the largest": ([2**63 - 1, -(2**63)], pa.int64(), [2**63 - 1, -(2**63)]),
    "float": ([0.5, nan, inf], pa.float64(), [0.5, nan, inf]),
    "bool": ([True, False], pa.bool_(), [True, False]),
    "text": (["a", ""], pa.string(), ["a", ""]),
    "nothing": ([None, None], pa.null(), [None, None]),
    "gaps": ([None, 1, None], pa.int64(), [None, 1, None]),
    "int, then float": ([1, 2.5], pa.float64(), [1.0, 2.5]),
    "float, then int": ([2.5, 2**53], pa.float64(), [2.5, 2.0**53]),
    "numpy": ([np.int32(3), np.float32(0.5), np.array(2)], pa.float64(), [3.0, 0.5, 2.0]),
    "numpy bool": ([np.bool_(True)], pa.bool_(), [True]),
    "tensors": ([torch.tensor(0.5, dtype=torch.bfloat16), torch.tensor(2)], pa.float64(), [0.5, 2.0]),
    "a tensor with a graph": ([torch.tensor(0.5, requires_grad=True)], pa.float64(), [0.5]),
    "lists": ([[1, 2], [], (3,)], pa.list_(pa.int64()), [[1, 2], [], [3]]),
    "lists of both": ([[1], [2.5, None]], pa.list_(pa.float64()), [[1.0], [2.5, None]]),
    "handles": ([handle(0.5), handle(torch.tensor(2.0))], pa.float64(), [0.5, 2.0]),
    "handles and numbers": ([1, handle(0.5), None], pa.float64(), [1.0, 0.5, None]),
    "handles of whole numbers": ([handle(torch.tensor(3), torch.int64), 4], pa.int64(), [3, 4]),
    "handles without values": ([Handle[float](), Handle[float]()], pa.float64(), [None, None]),
    "handles of flags without values": ([Handle[bool]((), torch.bool)], pa.bool_(), [None]),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_values_and_the_column_that_they_make(case: str) -> None:
    given, kind, expected = WRITTEN[case]
    column = recorded(*given)
    assert column.type == kind
    assert repr(column.to_pylist()) == repr(expected)  # NaN is not equal to itself


REFUSED: dict[str, tuple[list[Any], str]] = {
    "beyond 64 bits": ([2**63], "it needs more than 64 bits"),
    "unsigned beyond 64 bits": ([np.uint64(2**64 - 1)], "it needs more than 64 bits"),
    "text among numbers": ([1, "one"], "it is of kind text, and the column holds int"),
    "a number among text": (["one", 0.5], "it is of kind float, and the column holds text"),
    "a flag among numbers": ([1, True], "it is of kind bool, and the column holds int"),
    "a large number, then a fraction": ([2**53 + 1, 0.5], r"beyond 2\^53"),
    "a fraction, then a large number": ([0.5, 2**53 + 1], r"beyond 2\^53"),
    "both in a list": ([[0.5, 2**53 + 1]], r"beyond 2\^53"),
    "a list among numbers": ([1, [1]], "it is of kind list of int, and the column holds int"),
    "a mixed list": ([[1, "one"]], "it is of kind text, and the column holds int"),
    "lists of two kinds": ([[1], ["one"]], "it is of kind list of text, and the column holds list of int"),
    "a list of lists": ([[[1]]], "it is a list of lists"),
    "a list of handles": ([[Handle[float]()]], "it is a list of lists or of handles"),
    "a tensor": ([torch.zeros(3)], r"it has the shape \(3,\)"),
    "an array": ([np.zeros((2, 2))], r"it has the shape \(2, 2\)"),
    "a handle of a tensor": ([Handle[Any]((3,))], r"it is a handle of a tensor \(torch.float32, \(3,\)\)"),
    "a handle among text": (["one", Handle[float]()], "it is of kind float, and the column holds text"),
    "complex": ([1j], "it is of type complex"),
    "a complex tensor": ([torch.tensor(1j)], "it is of type complex"),
    "bytes": ([b"one"], "it is of type bytes"),
    "a mapping": ([{"a": 1}], "it is of type dict"),
    "a set": ([{1}], "it is of type set"),
    "a time": ([datetime(2020, 1, 1)], "it is of type datetime"),
    "a decimal": ([Decimal(1)], "it is of type Decimal"),
    "an object": ([object()], "it is of type object"),
    "half a character": (["\ud800"], "surrogates not allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_cannot_be_written_is_refused_when_it_is_added(case: str) -> None:
    given, why = REFUSED[case]
    tables = OwnTables()
    for value in given[:-1]:
        tables.add("notes", {}, {"it": value}, "Mine")
    with pytest.raises(ProtocolError, match=why) as caught:
        tables.add("notes", {}, {"it": given[-1]}, "Mine")
    assert "node.record('notes', …) of Mine: it = " in caught.value.what
    assert "bool, int (64 bits), float, str, None" in caught.value.allowed


@pytest.mark.parametrize("name", ["metrics", "rounds", "events", "", "../notes", "/tmp/notes", "a b", ".hidden", 3])
def test_a_table_has_the_name_of_a_file_of_its_own(name: Any) -> None:
    with pytest.raises(ProtocolError, match="a table cannot be called"):
        OwnTables().add(name, {}, {"it": 1})


@pytest.mark.parametrize("name", ["time_s", "party", ""])
def test_a_field_does_not_replace_what_is_added(name: str) -> None:
    with pytest.raises(ProtocolError, match="a field cannot be called"):
        OwnTables().add("notes", {"time_s": 0.5, "party": "server"}, {name: 1})


def test_fields_that_come_later_get_columns_of_their_own() -> None:
    tables = OwnTables()
    tables.add("notes", {"time_s": 0.5}, {"a": 1})
    tables.add("notes", {"time_s": 1.5}, {"b": "two"})
    assert tables.tables()["notes"].to_pylist() == [
        {"time_s": 0.5, "a": 1, "b": None},
        {"time_s": 1.5, "a": None, "b": "two"},
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"loss": 1.0}, "it is of type dict"),
        (torch.zeros(3), "it has the shape"),
        (True, "it is of kind bool, and the column holds float"),
        ("one", "it is of kind text, and the column holds float"),
    ],
)
def test_a_value_that_turns_out_wrong_is_named_and_costs_no_other(value: Any, why: str) -> None:
    tables = OwnTables()
    for number in (1, handle(value), 3):
        tables.add("notes", {}, {"it": number})
    error = tables.settle()
    assert error is not None
    assert "the value of a handle: it = " in error.what
    assert why in error.what
    assert tables.tables()["notes"]["it"].to_pylist() == [1, None, 3]


def test_a_value_that_no_operation_promises_is_refused_since_no_checkpoint_has_it() -> None:
    tables, promised, other = OwnTables(), handle(0.5), handle(1.5)
    for each in (promised, other):
        tables.add("notes", {}, {"it": each})
    error = tables.settle({promised})
    assert error is not None
    assert "no operation promises it" in error.what
    assert tables.tables()["notes"]["it"].to_pylist() == [0.5, None]
