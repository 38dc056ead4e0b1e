"""What a round of EASTER takes: two trips, in the closed form and in the simulation."""

from __future__ import annotations

from typing import Any

import pytest
from closed_forms_of import found
from tiny_worlds import raw, rounds, run

from vflsim.codecs.frame import ONLY, frame_bytes
from vflsim.scenario import load

BANDWIDTH, LATENCY = 2e6, 0.015


def easter(timing: dict[str, Any]) -> dict[str, Any]:
    """A scenario without blinding, whose embeddings have 8 bytes an element either way."""
    said = raw(
        {"it": {"kind": "easter", "blinding": "off"}}, timing=timing, partition={"clients": 3, "by": "image_rows"}
    )
    said["training"]["last_batch"], said["record"] = "drop", "rounds"
    return said


def communicating(network: str) -> dict[str, Any]:
    link = {"up": f"{BANDWIDTH} bps", "down": f"{BANDWIDTH} bps"}
    everybody = {"select": "all", "link": {**link, "latency": f"{LATENCY} s"}}
    return easter({"network": network, "server": {"compute": 0, "link": link}, "clients": everybody})


def sent(columns: int) -> float:
    """The bytes over the bandwidth of a message of 20 rows."""
    return 8 * (20 * columns * 8 + frame_bytes((ONLY,))) / BANDWIDTH


EMBEDDING, PREDICTION = sent(6), sent(10)
"""Both go either way: E_k and E; R_k and its gradient."""
ALONE = 2 * EMBEDDING + 2 * PREDICTION + 4 * LATENCY


def test_communication_takes_the_bytes_over_the_bandwidth_and_four_latencies() -> None:
    world = load(communicating("dedicated"))
    form = found(world)
    assert form.exactness == "exact"
    assert form.mean.low == pytest.approx(ALONE, rel=1e-9)
    measured = rounds(run(world)).iloc[1:]
    assert (measured["end_s"] - measured["start_s"]).to_numpy() == pytest.approx(ALONE, rel=1e-9)


@pytest.mark.parametrize(
    ("network", "waits"),
    [
        ("fifo", 4 * PREDICTION),  # three gradients, the last embedding; an embedding, then predictions in a queue
        ("fair", 4 * PREDICTION + 4 * EMBEDDING),  # whatever the server sends or receives is three at once
    ],
)
def test_where_parties_contend_the_measured_time_lies_within_the_bounds(network: str, waits: float) -> None:
    world = load(communicating(network))
    form = found(world)
    measured = rounds(run(world)).iloc[1:]
    assert form.exactness == "bounds"
    assert (form.mean.low, form.mean.high) == pytest.approx((ALONE, ALONE + 4 * PREDICTION + 4 * EMBEDDING))
    assert (measured["end_s"] - measured["start_s"]).to_numpy() == pytest.approx(ALONE + waits, rel=1e-9)
