"""What the last, smaller batch of an epoch costs under every protocol, against times computed by hand.

Sampled times are those of a full batch; FLOPs count the rows that are there.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from protocols_by_kind import KINDS, SOME
from tiny_worlds import data_of, events, learners, raw, rounds, run

from vflsim.scenario import load
from vflsim.scenario.models import Scenario

ROWS, BATCH, LAST = 90, 20, 10
CLIENTS = 8
MODEL = {"kind": "linear", "bias": False, "embedding": 6}


def world(protocol: dict[str, Any], clients: int = CLIENTS, **changes: Any) -> Scenario:
    """Eight clients with eight features each: 90 rows in batches of 20, the last one of 10. Links take no time."""
    changes = {"training__batch": BATCH, "stop": {"rounds": 10}, **changes}
    changes.setdefault("timing", {
        "server": {"compute": "0.1 s"},
        "clients": {"select": "all", "compute": "1 s", "upload_delay": "2 s"},
    })  # fmt: skip
    return load(raw(
        {"it": protocol}, partition={"clients": clients, "by": "columns"}, models__client=MODEL,
        evaluate={"every": "1000 rounds"}, **changes,
    ))  # fmt: skip


def lasting(scenario: Scenario) -> dict[str, list[float]]:
    """The different durations of every kind of activity that was done, ascending."""
    found = events(run(scenario, timing_only=True))
    done = found[found["outcome"] == "done"]
    seconds: dict[str, set[float]] = defaultdict(set)
    for kind, start, end in zip(done["kind"], done["start_s"], done["end_s"], strict=True):
        seconds[str(kind)].add(round(end - start, 9))
    return {kind: sorted(each) for kind, each in seconds.items()}


OTHERS = ("fedvs", "centralised", "local", "secureboost", "he_lr", "few_shot")
"""Clients that embed no batch: they embed shares, nothing or all aligned rows, or work on ciphertexts."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith(OTHERS)])
def test_a_sampled_time_does_not_shrink_with_the_last_batch(kind: str) -> None:
    found = lasting(world(KINDS[kind]))
    assert [seconds for seconds in found["compute.embed"] if seconds != 0.1] == found["compute.client_step"] == [1.0]
    assert found["compute.server_step"] == [0.1]


def test_a_sampled_centralised_step_does_not_shrink_with_the_last_batch() -> None:
    found = lasting(world(KINDS["centralised"]))
    assert {kind: each for kind, each in found.items() if each != [0.0]} == {"compute.server_step": [0.1]}


def test_a_synchronous_round_lasts_as_long_with_the_last_batch() -> None:
    """Client step 1 s, embedding 1 s, upload delay 2 s, server step 0.1 s; the first round has no client step."""
    found = rounds(run(world(KINDS["synchronous"]), timing_only=True))
    assert len(found) == 10
    assert (found["end_s"] - found["start_s"]).to_numpy() == pytest.approx([3.1, *[4.1] * 9])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("segments", "batch", "making", "delay"),
    [
        # making a share: d D h N log₂²N = 8 · 8 · 9 h products of a full batch's n · 8 h; delay: 2 s · log₂²N / |B|
        (1, BATCH, 8 * 9 / 20, 2 * 9 / 20),
        (2, BATCH, 8 * 9 / 20, 2 * 9 / 10),
        (2, ROWS, 8 * 9 / 90, 2 * 9 / 45),
        (2, "all", 8 * 9 / 90, 2 * 9 / 45),
        (3, "all", 8 * 9 / 90, 2 * 9 / 30),
    ],
)
def test_a_model_share_does_not_shrink_with_the_last_batch(
    segments: int, batch: int | str, making: float, delay: float
) -> None:
    """Eight clients, log₂²N = 9. An answer computes on all clients' 64 columns and 1/K of the rows: 8/K embeddings."""
    scenario = world({"kind": "fedvs", "K": segments}, training__batch=batch)
    found = lasting(scenario)
    assert found["compute.share_model"] == pytest.approx([making])
    assert found["share"] == pytest.approx([delay])
    assert found["compute.coded_embed"] == pytest.approx([8 / segments])
    assert found["compute.client_step"] == [1.0]
    assert found["compute.server_step"] == [0.1]
    lasted = rounds(run(scenario, timing_only=True))
    whole = 1 + making + delay + 8 / segments + 2 + 0.1
    assert (lasted["end_s"] - lasted["start_s"]).to_numpy()[1:] == pytest.approx([whole] * 9)


def test_padded_rows_are_computed_on_too() -> None:
    """90 rows in K = 4 segments of 23: with 16 clients of 4 columns an answer takes 23 · 64 of 90 · 4 products."""
    found = lasting(world({"kind": "fedvs", "K": 4}, clients=16, training__batch="all"))
    assert found["compute.coded_embed"] == pytest.approx([23 * 64 / (90 * 4)])
    assert found["share"] == pytest.approx([2 * 16 / 23])


def test_flops_count_the_rows_of_the_last_batch() -> None:
    """A linear embedding of b rows takes 2 · 8 · 6 b FLOPs, and so does its step; K = 1 answers 8 times as many."""
    timing = {
        "server": {"compute": "0.1 s"},
        "clients": {"select": "all", "compute": {"kind": "flops", "rate": "96 FLOPS"}, "upload_delay": "2 s"},
    }
    found = lasting(world(KINDS["synchronous"], timing=timing))
    assert found["compute.embed"] == found["compute.client_step"] == [LAST, BATCH]
    found = lasting(world(KINDS["fedvs"], timing=timing))
    assert found["compute.client_step"] == [LAST, BATCH]
    assert found["compute.coded_embed"] == [8 * LAST, 8 * BATCH]
    assert found["compute.share_model"] == pytest.approx([8 * np.log2(8) ** 2])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", SOME)
def test_a_batch_of_all_rows_is_the_same_however_it_is_said(kind: str) -> None:
    one, other = (run(world(KINDS[kind], training__batch=batch), timing_only=True) for batch in (ROWS, "all"))
    assert rounds(one).equals(rounds(other))
    assert events(one).equals(events(other))


def test_a_pass_over_a_split_costs_its_rows_over_those_of_a_batch() -> None:
    for batch, size in ((BATCH, 20), ("all", ROWS)):
        scenario = world(KINDS["synchronous"], training__batch=batch)
        data = data_of(scenario)
        server, clients = learners(scenario, "it", 0, data)
        assert clients[1].embed_split("test").units == len(data.labels["test"]) / size
        assert server.evaluate("test", []).units == len(data.labels["test"]) / size
