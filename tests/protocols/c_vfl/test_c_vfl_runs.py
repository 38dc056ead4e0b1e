"""Whole runs of C-VFL, and of FedBCD with recomputed gradients: crashes, interruptions and closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from away_clients import assert_outages_delay_rounds_and_training_continues
from closed_form_checks import seen
from kept_runs import assert_two_interruptions_change_no_byte
from thorough import every_pair, in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, apart, raw, rounds, run, same_times, tiny

QUANTISER = {"kind": "scalar_quantiser", "bits": 4}
EACH: dict[str, dict[str, Any]] = {
    "c_vfl": {"kind": "c_vfl", "local_steps": 2, "codec": QUANTISER},
    "feedback": {"kind": "c_vfl", "codec": {"kind": "top_k", "fraction": 0.3, "error_feedback": True}},
    "down": {"kind": "c_vfl", "codec": {"kind": "by_direction", "down": QUANTISER}},
    "up": {"kind": "c_vfl", "codec": {"kind": "by_direction", "up": QUANTISER}},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2, "gradients": "recomputed"},
}
each = pytest.mark.parametrize("protocol", EACH.values(), ids=EACH)


@each
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(protocol: dict[str, Any], tmp_path: Path) -> None:
    scenario = tiny({"it": protocol}, timing=RANDOM_TIMING, stop={"rounds": 7}, evaluate={"every": "3 rounds"})
    assert_two_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.slow
@in_turn(protocol=EACH, interrupt=["lost", "resumed"])
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(
    protocol: dict[str, Any], interrupt: str
) -> None:
    """It is away for 10 ms out of 60: in embeddings, uploads and local steps."""
    assert_outages_delay_rounds_and_training_continues(protocol, interrupt)


@each
def test_timing_alone_gives_the_same_rounds_and_so_does_one_client_after_the_other(protocol: dict[str, Any]) -> None:
    scenario = tiny({"it": protocol}, timing=RANDOM_TIMING, stop={"rounds": 8})
    outcome, eager = run(scenario), run(scenario, execution=EAGER)
    assert rounds(outcome).equals(rounds(run(scenario, timing_only=True)))
    assert same_times(outcome, eager)
    assert apart(outcome, eager) <= 1e-9


@pytest.mark.sampled(4)
@every_pair(
    protocol=EACH,
    network=["dedicated", "fifo"],
    compute={"time": "40 ms", "flops": {"kind": "flops", "rate": "1e5 FLOPS"}},
)
def test_the_law_of_a_round_agrees_with_its_simulation(protocol: dict[str, Any], compute: Any, network: str) -> None:
    """The server's further steps take about as long as the clients' cycles."""
    link = {"up": "100 kbps", "down": "100 kbps"}
    timing = {
        "network": network,
        "server": {"compute": {"kind": "exponential", "mean": "40 ms"}, "link": link},
        "clients": [
            {"select": "all", "compute": compute, "link": link, "upload_delay": {"kind": "exponential", "mean": "m ms"}}
        ],
    }
    partition = {"clients": 3, "by": "columns"}
    said = raw({"it": protocol}, timing=timing, training__last_batch="drop", record="rounds", partition=partition)
    checked = seen(said, 100, steps=300)
    assert checked.wrong == []
    assert checked.forms["none"] == 0
    assert checked.forms["bounds"] == (network == "fifo")
    assert checked.checks["simulated"] > 0
