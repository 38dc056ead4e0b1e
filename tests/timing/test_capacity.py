"""Bandwidths that change: what a scenario can say, and what comes out of trace files."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter, ValidationError
from thorough import examples

from vflsim.timing import readers as traces
from vflsim.timing.capacity import (
    CAPACITIES,
    AnyCapacity,
    CapacityKind,
    CapacityMahimahi,
    CapacitySteps,
    CapacityTrace,
    LatencyMatrix,
    Link,
    capacity_profile,
)
from vflsim.timing.profile import Flat
from vflsim.vocabulary.quantities import BANDWIDTH
from vflsim.world.networks import AnyNetwork, Fair, Fifo

ANY = TypeAdapter(AnyCapacity)


def written(folder: Path, text: str, name: str = "trace.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def values(capacity, *times):
    profile = capacity_profile(ANY.validate_python(capacity))
    return [profile.value(t) for t in times]


def test_the_table_and_the_field_list_the_same_kinds() -> None:
    assert get_args(CapacityKind) == CAPACITIES


def test_a_bandwidth_that_does_not_change_stays_a_number() -> None:
    assert ANY.validate_python("3 Mbps") == 3e6
    assert ANY.validate_python("unlimited") == math.inf
    assert isinstance(capacity_profile(3e6), Flat)


def test_steps_carry_units_and_may_be_a_list_alone() -> None:
    said = {"kind": "steps", "steps": [[0, "3 Mbps"], ["2 s", 0], ["5 s", "unlimited"]]}
    assert ANY.validate_python(said) == ANY.validate_python(said["steps"])
    assert values(said, 0, 1.9, 2, 5, 1e9) == [3e6, 3e6, 0, math.inf, math.inf]
    assert values({**said, "period": "6 s"}, 6, 8, 11) == [3e6, 0, math.inf]


@pytest.mark.parametrize("capacity", [[[0, 8]], {"kind": "steps", "steps": [[0, 8], [1, 0]], "period": 2}, 3.0, "inf"])
def test_links_with_any_capacity_survive_json(capacity) -> None:
    link = Link(up=capacity)
    assert Link.model_validate_json(link.model_dump_json()) == link


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([], "at least 1 item"),
        ([[1, 5]], "the first time is 1"),
        ([[0, 5], [2, 6], [2, 7]], "time 2.0 follows 2.0"),
        ([[0, 5], ["2 s", "-1 bps"]], "'-1 bps' = -1 is out of range; allowed: a number at least 0"),
        ([[0, 5], [2]], "Field required"),
        ([[0, 0], [2, 0]], "every rate is 0"),
        ({"kind": "steps", "steps": [[0, 5], [2, 6]], "period": 2}, "time 2.0 follows 2.0"),
        ({"kind": "waves"}, "'steps', 'trace', 'mahimahi'"),
        (0, "0 is out of range; allowed: a number above 0"),
        (None, "None is not a bandwidth"),
    ],
)
def test_capacities_that_make_no_sense_are_refused(bad, says) -> None:
    with pytest.raises(ValidationError, match=says):
        ANY.validate_python(bad)


# --- traces of rates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["", "time_s,rate_bps\n", "# measured on a train\n"])
def test_a_trace_holds_each_rate_from_its_time_on(tmp_path, header) -> None:
    file = written(tmp_path, header + "0,1000\n0.5, 0\n2,3e3\n")
    capacity = {"kind": "trace", "file": file}
    assert values(capacity, 0, 0.4, 0.5, 2, 1e6) == [1000, 1000, 0, 3000, 3000]
    assert values({**capacity, "period": "4 s"}, 4, 4.5, 6, 7.9, 8) == [1000, 0, 3000, 3000, 1000]


def test_a_traces_units(tmp_path) -> None:
    file = written(tmp_path, "0,1\n5,2\n")
    assert values({"kind": "trace", "file": file, "time_unit": "ms", "rate_unit": "Mbps"}, 0, 0.005) == [1e6, 2e6]
    assert values({"kind": "trace", "file": file, "rate_unit": "kB/s"}, 0, 5) == [8e3, 16e3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no numbers"),
        ("0,1\n1,2,3\n", "trace.csv:2: 3 columns"),
        ("0,1\nnow,2\n", "trace.csv:2"),
        ("1,1\n", "the first time is 1; allowed: 0"),
        ("0,1\n3,1\n2,1\n", "time 2 in row 3; allowed: times that ascend"),
        ("0,1\n3,-1\n", "rate -1 in row 2; allowed: numbers of at least 0"),
        ("0,1\n3,nan\n", "rate nan in row 2"),
        ("0,1\ninf,2\n", "time inf in row 2; allowed: finite"),
        ("0,0\n1,0\n", "every rate is 0"),
    ],
)
def test_traces_that_make_no_sense_are_refused(tmp_path, text, says) -> None:
    with pytest.raises(ValidationError, match=says):
        CapacityTrace(file=written(tmp_path, text))


def test_a_trace_cannot_be_repeated_before_it_ends(tmp_path) -> None:
    with pytest.raises(ValidationError, match=r"period = 2 s, but .*trace.csv lasts until 3 s"):
        CapacityTrace(file=written(tmp_path, "0,1\n3,2\n"), period=2)


@pytest.mark.parametrize("kind", [CapacityTrace, CapacityMahimahi])
def test_files_that_cannot_be_read_are_refused(tmp_path, kind) -> None:
    with pytest.raises(ValidationError, match=r"cannot read '.*none'.*No such file"):
        kind(file=str(tmp_path / "none"))
    with pytest.raises(ValidationError, match="it is a folder, not a regular file"):
        kind(file=str(tmp_path))
    (tmp_path / "noise").write_bytes(bytes(range(255, 0, -1)))
    with pytest.raises(ValidationError, match="cannot read"):
        kind(file=str(tmp_path / "noise"))


def test_a_file_is_read_once_for_all_links_and_again_when_it_has_changed(tmp_path, monkeypatch) -> None:
    read = []
    columns_of = traces.columns_of
    monkeypatch.setattr(traces, "columns_of", lambda file, names: read.append(file) or columns_of(file, names))
    file = written(tmp_path, "0,1\n1,2\n")
    links = [Link(up={"kind": "trace", "file": file}) for _ in range(50)]
    assert len({id(capacity_profile(link.up)) for link in links}) == 1
    assert len(read) == 1
    written(tmp_path, "0,1\n1,20\n")
    assert capacity_profile(links[0].up).value(1) == 20


# --- packet traces ----------------------------------------------------------------------------------------------------


def test_a_trace_of_one_packet_a_millisecond_is_twelve_megabits_a_second(tmp_path) -> None:
    """The example of Mahimahi's own page: a file that contains just 1."""
    assert values({"kind": "mahimahi", "file": written(tmp_path, "1\n")}, 0, 0.01, 123.4) == [12e6, 12e6, 12e6]


def test_a_window_carries_the_packets_that_end_in_it(tmp_path) -> None:
    file = written(tmp_path, "0\n4\n10\n11\n\n25\n25\n")
    capacity = {"kind": "mahimahi", "file": file, "window": "10 ms"}
    # 0, 4 and 10 in the first 10 ms, 11 in the second, two in the last 5 ms.
    bits = 12000
    assert values(capacity, 0, 0.01, 0.02, 0.025) == [3 * bits / 0.01, bits / 0.01, 2 * bits / 0.005, 3 * bits / 0.01]
    assert values({**capacity, "repeated": False}, 0.02, 0.025, 99) == [2 * bits / 0.005] * 3
    assert values({**capacity, "window": "1 s"}, 0) == [6 * bits / 0.025]


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    stamps=st.lists(st.integers(0, 3000), min_size=1, max_size=200).map(sorted).filter(lambda stamps: stamps[-1] > 0),
    window=st.sampled_from(["1 ms", "7 ms", "57 ms", "100 ms", "0.33 s", "10 s"]),
)
def test_no_byte_is_lost_and_none_is_more_than_a_window_early(tmp_path_factory, stamps, window) -> None:
    file = written(tmp_path_factory.mktemp("trace"), "\n".join(map(str, stamps)))
    capacity = CapacityMahimahi.model_validate({"file": file, "window": window})
    profile = capacity.profile()
    end = stamps[-1] / 1000
    assert profile.amount(0.0, end) == pytest.approx(12000 * len(stamps), rel=1e-12)
    assert profile.amount(0.0, 3 * end) == pytest.approx(36000 * len(stamps), rel=1e-12)
    for k, stamp in enumerate(stamps, start=1):
        early = float(max(Fraction(stamp, 1000) - Fraction(capacity.window), 0))
        assert profile.amount(0.0, early) <= 12000 * k * (1 + 1e-9)
        assert profile.amount(0.0, min(stamp / 1000 + capacity.window, end)) >= 12000 * k * (1 - 1e-9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no time stamps"),
        ("0\n0\n", "has no time stamp above 0"),
        ("5\n4\n", "trace.csv:2: 4 ms after 5 ms"),
        ("5\n-4\n", "trace.csv:2: '-4'"),
        ("5\n5.5\n", "trace.csv:2: '5.5'"),
        ("0,1000\n", "trace.csv:1: '0,1000'"),
        ("9" * 30, "trace.csv:1"),
    ],
)
def test_packet_traces_that_make_no_sense_are_refused(tmp_path, text, says) -> None:
    with pytest.raises(ValidationError, match=says):
        CapacityMahimahi(file=written(tmp_path, text))


def test_steps_know_the_most_they_ever_carry() -> None:
    assert CapacitySteps(steps=((0, 3), (1, 9), (2, 4))).profile().highest == 9


def test_a_slow_trace_without_its_unit_is_refused_in_a_scenario(tmp_path: Path) -> None:
    file = written(tmp_path, "0,3\n5,1\n")
    said = {"kind": "trace", "file": file}
    with pytest.raises(ValidationError, match=r"highest rate is 3 bps.*rate_unit: Mbps.*insist: `rate_unit: bps`"):
        ANY.validate_python(said, context={"symbols": {}})
    insisted = ANY.validate_python({**said, "rate_unit": "bps"}, context={"symbols": {}})
    assert insisted.profile().highest == ANY.validate_python(said).profile().highest == 3


def test_steps_need_their_units_where_they_are_small() -> None:
    with pytest.raises(ValidationError, match="1 without a unit is 1 bps"):
        ANY.validate_python([[0, "3 Mbit/s"], [1, 0], [2, 1]], context={"symbols": {}})


@pytest.mark.parametrize("unit", ["bps", "bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
def test_a_trace_may_name_every_spelling_of_its_unit(unit: str, tmp_path: Path) -> None:
    file = written(tmp_path, "0,3\n")
    profile = CapacityTrace(file=file, rate_unit=unit).profile()  # type: ignore[arg-type]
    assert profile.highest == 3 * BANDWIDTH.units[unit]


# --- latency ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["0,1,2\n3,0,4\n5,6,0\n", "0\t1\t2\n3\t0\t4\n5\t6\t0", "# ms\n0 1  2\n\n3 0 4 \n5, 6, 0"]
)
def test_rows_are_from_and_columns_are_to(tmp_path, text) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, text, "matrix.txt"), unit="ms")
    found = [[matrix.seconds(a, b) for b in range(3)] for a in range(3)]
    assert found == [[0, 0.001, 0.002], [0.003, 0, 0.004], [0.005, 0.006, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_a_matrix_may_be_an_npy_file(tmp_path, dtype) -> None:
    np.save(tmp_path / "matrix.npy", np.array([[0, 1], [2, 0]], dtype))
    assert LatencyMatrix(file=str(tmp_path / "matrix.npy")).seconds(1, 0) == 2.0


def test_round_trips_are_halved(tmp_path) -> None:
    file = written(tmp_path, "0 3\n5 0\n", "matrix.txt")
    assert LatencyMatrix(file=file, unit="ms", round_trip=True).seconds(0, 1) == 0.0015


def test_parties_may_be_any_nodes(tmp_path) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, "0 1 2\n3 0 4\n5 6 0\n", "matrix.txt"), nodes=(2, 0, 2))
    assert [matrix.seconds(0, 1), matrix.seconds(1, 0)] == [5, 2]
    matrix.check(3)
    with pytest.raises(ValueError, match="nodes has 3 nodes for 4 parties; allowed: at least one for each"):
        matrix.check(4)


def test_a_matrix_needs_a_node_for_every_party(tmp_path) -> None:
    matrix = LatencyMatrix(file=written(tmp_path, "0 1\n1 0\n", "matrix.txt"))
    matrix.check(2)
    with pytest.raises(ValueError, match=r"matrix.txt has 2 nodes for 3 parties"):
        matrix.check(3)


def test_what_stands_on_the_diagonal_does_not_matter(tmp_path) -> None:
    assert LatencyMatrix(file=written(tmp_path, "nan 1\n2 -1\n", "matrix.txt")).seconds(0, 1) == 1


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
        LatencyMatrix(file=written(tmp_path, text, "matrix.txt"))


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
        LatencyMatrix(file=written(tmp_path, "0 1\n1 0\n", "matrix.txt"), nodes=(0, 2))


def test_every_network_takes_a_matrix(tmp_path) -> None:
    latency = {"file": written(tmp_path, "0 1\n1 0\n", "matrix.txt"), "unit": "ms"}
    for kind in ("fifo", "dedicated", "fair"):
        network = TypeAdapter(AnyNetwork).validate_python({"kind": kind, "latency": latency})
        assert network.latency == LatencyMatrix(**latency)
    assert (Fair().latency, Fifo().latency) == (None, None)
