"""The reference pays for the whole model, clients' parts included, at the server's rate: times computed by hand."""

from typing import Any

import pytest
from closed_forms_of import found
from tiny_worlds import events, raw, rounds, run

from vflsim.scenario import load
from vflsim.scenario.models import Scenario

CLIENTS, COLUMNS, HIDDEN, EMBEDDING, CLASSES = 8, 8, 4, 6, 10
RATE = 1_000.0
SLOW = {"kind": "flops", "rate": "1 FLOPS"}


def world(server: Any, **changes: Any) -> Scenario:
    """Eight clients of 8 features, 8-4-6 networks; the server 6-10; 90 rows in batches of 20, the last one of 10."""
    return load(raw(
        {"it": {"kind": "centralised"}}, partition={"clients": CLIENTS, "by": "columns"},
        models__client={"kind": "mlp", "hidden": [HIDDEN], "embedding": EMBEDDING}, models__server={"kind": "linear"},
        timing={"server": {"compute": server}, "clients": {"select": "all", "compute": SLOW}},
        **changes,
    ))  # fmt: skip


def forward_client(rows: int) -> int:
    return 2 * rows * (COLUMNS * HIDDEN + HIDDEN * EMBEDDING)


def backward_client(rows: int) -> int:
    """The gradients of both layers' weights, and of the second layer's input; nobody needs that of the features."""
    return 2 * rows * (COLUMNS * HIDDEN + 2 * HIDDEN * EMBEDDING)


def step(rows: int) -> float:
    """FLOPs of a whole step: the server's linear model forward, and backward to its weights and its input."""
    return CLIENTS * (forward_client(rows) + backward_client(rows)) + 3 * 2 * rows * EMBEDDING * CLASSES


FLOPS = {"kind": "flops", "rate": RATE}
KINDS = [20, 20, 20, 20, 10]
"""Rows of the batches of an epoch."""


def test_a_round_takes_the_flops_of_the_whole_model() -> None:
    outcome = run(world(FLOPS, stop={"rounds": 10}), timing_only=True)
    lasted = (rounds(outcome)["end_s"] - rounds(outcome)["start_s"]).to_numpy()
    assert lasted == pytest.approx([step(rows) / RATE for rows in KINDS * 2])
    assert set(events(outcome)["kind"]) == {"compute.server_step"}


def test_a_sampled_time_is_that_of_the_whole_step() -> None:
    outcome = run(world("0.3 s", stop={"rounds": 6}), timing_only=True)
    assert rounds(outcome)["end_s"].to_numpy() == pytest.approx([0.3 * (k + 1) for k in range(6)])


def test_an_evaluation_that_costs_time_takes_the_forward_passes_of_the_whole_model() -> None:
    scenario = world(FLOPS, stop={"rounds": 5}, evaluate={"every": "2 rounds", "costs_time": True})
    done = events(run(scenario, timing_only=True), "compute.evaluate")
    rows = 180  # a tenth of the 1,797 digits, by class
    assert len(done) >= 1
    whole = CLIENTS * forward_client(rows) + 2 * rows * EMBEDDING * CLASSES
    assert (done["end_s"] - done["start_s"]).to_numpy() == pytest.approx([whole / RATE] * len(done))


def test_the_closed_form_is_the_mean_over_an_epoch() -> None:
    assert found(world(FLOPS)).mean.low == pytest.approx(sum(map(step, KINDS)) / len(KINDS) / RATE)
    jittery = {**FLOPS, "jitter": {"kind": "uniform", "low": 1, "high": 2}}
    assert found(world(jittery)).mean.low == pytest.approx(1.5 * sum(map(step, KINDS)) / len(KINDS) / RATE)
