"""Latencies from matrix files."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from vflsim.timing.capacity import LatencyMatrix
from vflsim.world.networks import AnyNetwork, Fair, Fifo


def written(folder, text, name="matrix.txt"):
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "text", ["0,1,2\n3,0,4\n5,6,0\n", "0\t1\t2\n3\t0\t4\n5\t6\t0", "# ms\n0 1  2\n\n3 0 4 \n5, 6, 0"]
)
def test_rows_are_from_and_columns_are_to(tmp_path, text) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, text), unit="ms")
    found = [[matrix.seconds(a, b) for b in range(3)] for a in range(3)]
    assert found == [[0, 0.001, 0.002], [0.003, 0, 0.004], [0.005, 0.006, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_a_matrix_may_be_an_npy_file(tmp_path, dtype) -> None:
    np.save(tmp_path / "matrix.npy", np.array([[0, 1], [2, 0]], dtype))
    assert LatencyMatrix(file=str(tmp_path / "matrix.npy")).seconds(1, 0) == 2.0


def test_round_trips_are_halved(tmp_path) -> None:
    file = written(tmp_path, "0 3\n5 0\n")
    assert LatencyMatrix(file=file, unit="ms", round_trip=True).seconds(0, 1) == 0.0015


def test_parties_may_be_any_nodes(tmp_path) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, "0 1 2\n3 0 4\n5 6 0\n"), nodes=(2, 0, 2))
    assert [matrix.seconds(0, 1), matrix.seconds(1, 0)] == [5, 2]
    matrix.check(3)
    with pytest.raises(ValueError, match="nodes has 3 nodes for 4 parties; allowed: at least one for each"):
        matrix.check(4)


def test_a_matrix_needs_a_node_for_every_party(tmp_path) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, "0 1\n1 0\n"))
    matrix.check(2)
    with pytest.raises(ValueError, match=r"matrix.txt has 2 nodes for 3 parties"):
        matrix.check(3)


def test_what_stands_on_the_diagonal_does_not_matter(tmp_path) -> None:
    assert LatencyMatrix(file=written(tmp_path, "nan 1\n2 -1\n")).seconds(0, 1) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 rows and 0 columns"),
        ("0 1 2\n1 0 2\n", "2 rows and 3 columns; allowed: a square matrix"),
        ("0 1\n1\n", "matrix.txt:2: 1 numbers after rows of 2"),
        ("0 1\nfar 0\n", "matrix.txt:2: not all of it is numbers"),
        ("0 -1\n1 0\n", "-1 in row 1, column 2; allowed: finite latencies of at least 0"),
        ("0 1\nnan 0\n", "nan in row 2, column 1"),
        ("0 1\ninf 0\n", "inf in row 2, column 1"),
    ],
)
def test_matrices_that_make_no_sense_are_refused(tmp_path, text, says) -> None:
    with pytest.raises(ValidationError, match=says):
        LatencyMatrix(file=written(tmp_path, text))


def test_files_that_hold_no_matrix_are_refused(tmp_path) -> None:
    with pytest.raises(ValidationError, match="cannot read"):
        LatencyMatrix(file=str(tmp_path / "none"))
    np.save(tmp_path / "line.npy", np.arange(4.0))
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    for name, says in (
        ("line.npy", "4 rows and 1 columns; allowed: a square matrix"),
        ("objects.npy", "objects are refused, they could run code"),
    ):
        with pytest.raises(ValidationError, match=says):
            LatencyMatrix(file=str(tmp_path / name))


def test_a_node_must_be_in_the_matrix(tmp_path) -> None:
    with pytest.raises(ValidationError, match=r"node 2 is not in .*; allowed: nodes 0 to 1"):
        LatencyMatrix(file=written(tmp_path, "0 1\n1 0\n"), nodes=(0, 2))


def test_every_network_takes_a_matrix(tmp_path) -> None:
    latency = {"file": written(tmp_path, "0 1\n1 0\n"), "unit": "ms"}
    for kind in ("fifo", "dedicated", "fair"):
        network = TypeAdapter(AnyNetwork).validate_python({"kind": kind, "latency": latency})
        assert network.latency == LatencyMatrix(**latency)
    assert (Fair().latency, Fifo().latency) == (None, None)
