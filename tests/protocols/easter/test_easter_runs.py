"""Rounds of EASTER in time: a crash between its trips, and what its messages carry."""

from __future__ import annotations

from typing import Any

import pytest
from closed_forms_of import found
from protocols_by_kind import KINDS
from tiny_worlds import events, raw, rounds, run, tiny

from vflsim.codecs.frame import ONLY, frame_bytes
from vflsim.scenario import load


def test_a_client_that_crashes_between_the_trips_gets_the_global_embedding_again() -> None:
    intervals = {"kind": "intervals", "down": [["14 ms", "20 ms"]], "interrupted": "lost"}
    timing = {
        "server": {"compute": "1 ms", "link": {"latency": "1 ms"}},
        "clients": [
            {"select": "all", "compute": "5 ms"},
            {"select": "2", "upload_delay": "4 ms", "availability": intervals},
        ],
    }
    outcome = run(tiny({"it": KINDS["easter-clear"]}, timing=timing, stop={"rounds": 3}))
    first = events(outcome, "transfer.global_embedding")
    first = first[first["round"] == 0]
    assert sorted(first["peer"]) == ["client-1", "client-2", "client-2", "client-3", "client-4"]
    assert len(events(outcome, "compute.embed", "client-2")) == 1 + 3  # it begins the round anew
    assert len(rounds(outcome)) == 3


def test_messages_carry_embeddings_and_predictions() -> None:
    outcome = run(tiny({"it": KINDS["easter-clear"]}, stop={"rounds": 4}))
    sent = events(outcome)
    done = sent[sent["kind"].str.startswith("transfer.") & (sent["outcome"] == "done") & (sent["round"] == 1)]
    embedding, prediction = (frame_bytes((ONLY,)) + 20 * columns * 8 for columns in (6, 10))
    assert dict(zip(done["kind"], done["bytes"], strict=True)) == {
        "transfer.embedding": embedding,
        "transfer.global_embedding": embedding,
        "transfer.prediction": prediction,
        "transfer.gradient": prediction,
    }


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
