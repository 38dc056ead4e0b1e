"""``benchmarks/kernel_network.py``: real TCP in network namespaces, where this machine allows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LATENCY, RATE, BURST = 0.01, 40e6, 3_028


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def namespaces_of_processes() -> Iterator[int]:
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # the process has ended, or is another user's
            yield link.stat().st_ino


def measured(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What the script measures; skips where it says that it cannot: that namespaces are not allowed, say."""
    out = folder / "measured.json"
    words = [sys.executable, str(BENCHMARKS / "kernel_network.py"), "--out", str(out), "--repeats", "1", *arguments]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if refused := [line for line in ended.stderr.splitlines() if "cannot be measured here" in line]:
        pytest.skip(refused[0])
    assert ended.returncode == 0, ended.stderr
    assert "bytes |" in ended.stdout
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    return rows


def test_bytes_on_the_wire_are_those_of_full_packets_and_records() -> None:
    from kernel_flows import on_wire

    assert on_wire(1, tls=False) == 67
    assert on_wire(1_448, tls=False) == 1_514
    assert on_wire(1_449, tls=False) == 1_449 + 2 * 66
    assert on_wire(16_384, tls=True) == 16_384 + 22 + 12 * 66
    assert on_wire(16_385, tls=True) == 16_385 + 44 + 12 * 66


def test_the_prediction_is_the_simulations_of_uploads_that_begin_when_they_did() -> None:
    from kernel_flows import predicted
    from namespaces import Rates

    fast, slow = Rates(8e6, 8e6), Rates(2e6, 8e6)
    # A byte takes 1 µs at the server. From 10 s on the slow client has 0.25 MB/s and the other one 0.75.
    spans = predicted([10.0, 10.0], [500_000, 750_000], [fast, slow, fast], latency=0.5)
    assert [end for _, end in spans] == pytest.approx([12.5, 11.5], abs=1e-9)
    # The second one begins as the first has a half left, and both share.
    spans = predicted([3.0, 3.5], [1_000_000, 1_000_000], [fast, fast, fast], down=True)
    assert spans == [(3.0, pytest.approx(4.5, abs=1e-9)), (3.5, pytest.approx(5.0, abs=1e-9))]


def test_windows_are_predicted_with_what_went_over_a_connection_before() -> None:
    from kernel_flows import Way, windowed
    from namespaces import Rates

    rates, sending = [Rates(RATE, RATE)] * 2, 8 * 1_514 / RATE

    def takes(way: Way, packets: int, gap: float = 0.0) -> float:
        [(begin, end)] = windowed([5.0], packets * 1_448, way, gap, rates, latency=0.01)
        return end - begin

    # A round trip sets a connection up; ten packets, twenty, and the rest.
    assert takes(Way(new=True), 30) == pytest.approx(0.03 + (0.02 + sending) + 20 * sending)
    assert takes(Way(new=True, tls=True), 1) - takes(Way(new=True), 1) == pytest.approx(0.02, abs=1e-4)
    assert takes(Way(warm=2_000_000), 30, 0.1) == pytest.approx(0.01 + 30 * sending)
    assert takes(Way(warm=2_000_000), 30, 3.0) == pytest.approx(takes(Way(new=True), 30) - 0.02)


def test_namespaces_end_with_what_has_made_them_even_if_it_is_interrupted() -> None:
    from namespaces import NotAllowedError, Rates, Star

    numbers: list[int] = []
    handles: list[int] = []

    def interrupted() -> None:
        with Star([Rates(1e6, 1e6)] * 2) as star:
            numbers.extend(star.numbers)
            handles.extend(each.handle for each in star.parties)
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    except NotAllowedError as error:
        pytest.skip(str(error))
    assert len({*numbers}) == 3
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
    assert not {*numbers} & {*namespaces_of_processes()}
    assert not [name for name in os.listdir("/sys/class/net") if name.startswith(("party", "port", "star"))]


@pytest.mark.slow
def test_uploads_at_once_arrive_and_are_not_faster_than_the_filters_let_them(tmp_path: Path) -> None:
    rows = measured(
        tmp_path, "--worlds", "equal", "far", "--flows", "2", "--sizes", "50000", "--latencies", f"{LATENCY}"
    )
    ways = ["TCP", "TLS", "new", "in use", "idle for 1 s", "idle for 3 s"]
    assert [row["way"] for row in rows] == ways
    for row in rows:
        latency = LATENCY if row["world"] == "far" else 0.0
        # What both have sent has passed one filter; acknowledgements go the other way.
        least = latency + 8 * (2 * row["wire"] - BURST) / RATE
        assert max(row["measured"]) > 0.98 * least, row["way"]
        assert max(row["predicted"]) >= latency + 8 * row["wire"] / RATE
        assert not {*row["spaces"]} & {*namespaces_of_processes()}


@pytest.mark.slow
def test_downloads_go_on_beside_one_to_a_process_that_is_stopped(tmp_path: Path) -> None:
    rows = measured(tmp_path, "--worlds", "stopped", "--flows", "3", "--sizes", "500000")
    assert [row["way"] for row in rows] == ["without it", "with it", "it is stopped"]
    for row in rows:
        assert [len(row[each]) for each in ("measured", "predicted")] == [2, 2]
        assert max(row["measured"]) > 0.98 * 8 * (2 * 500_000 - BURST) / RATE


@pytest.mark.slow
def test_live_parties_play_inside_the_namespaces(tmp_path: Path) -> None:
    rows = measured(tmp_path, "--worlds", "parties", "--flows", "2", "--sizes", "65536")
    assert {row["way"] for row in rows} == {"up", "down", "round"}
    for row in rows:
        if row["way"] != "round":
            assert row["wire"] > 65_536
            assert max(row["measured"]) > 8 * (row["wire"] - 2 * BURST) / RATE * 0.98
