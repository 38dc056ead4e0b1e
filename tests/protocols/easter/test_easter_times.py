"""What a round of EASTER takes: two trips, in the closed form and in the simulation."""

from __future__ import annotations

from typing import Any

import pytest
from closed_form_checks import seen
from closed_forms_of import found
from tiny_worlds import raw, rounds, run

from vflsim.codecs.frame import ONLY, frame_bytes
from vflsim.scenario import load

BANDWIDTH, LATENCY = 2e6, 0.015
MODELS: dict[str, Any] = {
    "client": [
        {"select": "all", "kind": "mlp", "hidden": [40], "embedding": 6},
        {"select": "2", "kind": "cnn", "channels": [2], "embedding": 6},
    ],
    "predictor": [{"select": "1", "kind": "mlp", "hidden": [30]}, {"select": "3", "kind": "linear"}],
    "active": {"kind": "mlp", "hidden": [9], "embedding": 6},
}


def easter(timing: dict[str, Any], **models: Any) -> dict[str, Any]:
    """A scenario without blinding, whose embeddings have 8 bytes an element either way."""
    said = raw(
        {"it": {"kind": "easter", "blinding": "off"}}, timing=timing, partition={"clients": 3, "by": "image_rows"}
    )
    said["training"]["last_batch"], said["record"] = "drop", "rounds"
    said["models"] |= models
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


FLOPS = {"kind": "flops", "rate": "1e6 FLOPS"}


@pytest.mark.parametrize(
    ("compute", "blinding"),
    [("40 ms", "off"), ({"kind": "exponential", "mean": "40 ms"}, "off"), (FLOPS, "off"), (FLOPS, "on")],
)
def test_the_law_of_a_round_agrees_with_its_simulation(compute: Any, blinding: str) -> None:
    link = {"up": "100 kbps", "down": "100 kbps"}
    delay = {"kind": "exponential", "mean": "m ms"}
    timing = {
        "network": "dedicated",
        "server": {"compute": compute if isinstance(compute, dict) else "50 ms"},
        "clients": [{"select": "all", "compute": compute, "link": link, "upload_delay": delay}],
    }
    said = easter(timing, **MODELS)
    said["protocols"]["it"]["blinding"] = blinding
    checked = seen(said, 100, steps=400)
    assert checked.wrong == []
    assert checked.forms["none"] == checked.forms["bounds"] == 0
    assert checked.checks["simulated"] > 0
