"""Rounds of FedBCD in time: the server's further steps, and turns that are lost."""

from __future__ import annotations

import pytest
from away_clients import assert_outages_delay_rounds_and_training_continues
from tiny_worlds import events, rounds, run, tiny

ROWS = {"clients": 3, "by": "columns"}


def test_a_parallel_round_lasts_as_long_as_the_server_s_further_steps() -> None:
    """30 steps of 10 ms outlast the clients; the first round has none before it."""
    timing = {"server": {"compute": "10 ms"}, "clients": {"select": "all", "compute": "1 ms"}}
    said = {"kind": "fedbcd", "local_steps": 1, "server_steps": 30}
    lasted = rounds(run(tiny({"it": said}, timing=timing, stop={"rounds": 4})))
    assert (lasted["end_s"] - lasted["start_s"]).tolist() == pytest.approx([0.011, 0.3, 0.3, 0.3])


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", ["lost", "resumed"])
def test_a_turn_that_is_lost_is_taken_anew(interrupt: str) -> None:
    """Client 2 is away for 10 ms out of 60: before and after its turn, and in it."""
    turns = {"kind": "fedbcd", "local_steps": 2, "order": "sequential"}
    outcome = assert_outages_delay_rounds_and_training_continues(turns, interrupt, partition=ROWS)
    steps = events(outcome, "compute.client_step", "client-2")
    assert (steps["outcome"] == "done").sum() >= 2 * 40
