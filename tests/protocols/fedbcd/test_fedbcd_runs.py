"""Whole runs of FedBCD: crashes, interruptions and closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from away_clients import assert_outages_delay_rounds_and_training_continues
from closed_form_checks import seen
from kept_runs import assert_two_interruptions_change_no_byte
from thorough import every_pair
from tiny_worlds import RANDOM_TIMING, events, raw, rounds, run, tiny

EITHER: dict[str, dict[str, Any]] = {
    "parallel": {"kind": "fedbcd", "local_steps": 2},
    "sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
}
either = pytest.mark.parametrize("order", EITHER)
EXPONENTIAL = {"kind": "exponential", "mean": "40 ms"}
ROWS = {"clients": 3, "by": "columns"}


@either
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(order: str, tmp_path: Path) -> None:
    scenario = tiny({"it": EITHER[order]}, timing=RANDOM_TIMING, stop={"rounds": 7}, evaluate={"every": "3 rounds"})
    assert_two_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.slow
@either
@pytest.mark.parametrize("interrupt", ["lost", "resumed"])
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(order: str, interrupt: str) -> None:
    """It is away for 10 ms out of 60: in embeddings, uploads and local steps, and before and after its turn."""
    outcome = assert_outages_delay_rounds_and_training_continues(EITHER[order], interrupt, partition=ROWS)
    steps = events(outcome, "compute.client_step", "client-2")
    again = 2 * 40 if order == "sequential" else 0  # a turn that is lost is taken anew
    assert (steps["outcome"] == "done").sum() >= again


@either
def test_timing_alone_gives_the_same_rounds(order: str) -> None:
    scenario = tiny({"it": EITHER[order]}, timing=RANDOM_TIMING, stop={"rounds": 8})
    assert rounds(run(scenario)).equals(rounds(run(scenario, timing_only=True)))


@every_pair(
    steps={
        "parallel": ("parallel", "150 ms"),
        "parallel, random": ("parallel", EXPONENTIAL),
        "sequential": ("sequential", "1 ms"),
    },
    compute={"time": "40 ms", "random": EXPONENTIAL, "flops": {"kind": "flops", "rate": "1e5 FLOPS"}},
    network=["dedicated", "fifo"],
)
def test_the_law_of_a_round_agrees_with_its_simulation(steps: tuple[str, Any], compute: Any, network: str) -> None:
    """In parallel, the server's further steps take about as long as the clients' cycles."""
    order, server = steps
    link = {"up": "100 kbps", "down": "100 kbps"}
    timing = {
        "network": network,
        "server": {"compute": server, "link": link},
        "clients": [
            {"select": "all", "compute": compute, "link": link, "upload_delay": {"kind": "exponential", "mean": "m ms"}}
        ],
    }
    said = raw({"it": EITHER[order]}, timing=timing, training__last_batch="drop", record="rounds", partition=ROWS)
    checked = seen(said, 100, steps=300)
    assert checked.wrong == []
    assert checked.forms["none"] == 0
    assert checked.forms["bounds"] == (network == "fifo")
    assert checked.checks["simulated"] > 0


def test_a_parallel_round_lasts_as_long_as_the_server_s_further_steps() -> None:
    """30 steps of 10 ms outlast the clients; the first round has none before it."""
    timing = {"server": {"compute": "10 ms"}, "clients": {"select": "all", "compute": "1 ms"}}
    said = {"kind": "fedbcd", "local_steps": 1, "server_steps": 30}
    lasted = rounds(run(tiny({"it": said}, timing=timing, stop={"rounds": 4})))
    assert (lasted["end_s"] - lasted["start_s"]).tolist() == pytest.approx([0.011, 0.3, 0.3, 0.3])
