"""Whole runs of every protocol: interrupted, timed alone, and with a client that is away again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from away_clients import assert_outages_delay_rounds_and_training_continues
from kept_runs import assert_interruptions_change_no_byte
from pandas.testing import assert_frame_equal
from protocols_by_kind import KINDS
from thorough import in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, apart, events, rounds, run, same_times, tiny

from vflsim.scenario.models import Scenario

QUANTISER = {"kind": "scalar_quantiser", "bits": 4}
CODED: dict[str, dict[str, Any]] = {
    "c_vfl-quantised": {"kind": "c_vfl", "local_steps": 2, "codec": QUANTISER},
    "c_vfl-feedback": {"kind": "c_vfl", "codec": {"kind": "top_k", "fraction": 0.3, "error_feedback": True}},
    "c_vfl-down": {"kind": "c_vfl", "codec": {"kind": "by_direction", "down": QUANTISER}},
    "c_vfl-up": {"kind": "c_vfl", "codec": {"kind": "by_direction", "up": QUANTISER}},
    "ef_vfl-quantised": {"kind": "ef_vfl", "codec": {"kind": "scalar_quantiser", "bits": 3}, "local_steps": 2},
    "ef_vfl-private-quantised": {"kind": "ef_vfl", "labels": "private", "codec": QUANTISER},
    "ef_vfl-plain": {"kind": "ef_vfl", "labels": "private", "local_steps": 2},
}
"""Codecs with states of their own, and messages that are passed on."""
ALL = {**KINDS, **CODED}
RULES = {
    "training__client_optimizer": {"kind": "adam", "lr": 0.01},
    "training__server_optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.8},
}


def scenario(name: str, **changes: Any) -> Scenario:
    return tiny({"it": ALL[name]}, timing=RANDOM_TIMING, **changes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ALL)
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    made = scenario(name, stop={"rounds": 7}, evaluate={"every": "3 rounds"}, **RULES)
    assert_interruptions_change_no_byte(made, tmp_path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALL)
def test_timing_alone_gives_the_same_rounds_and_events(name: str) -> None:
    made = scenario(name, stop={"rounds": 8})
    outcome, timed = run(made), run(made, timing_only=True)
    assert_frame_equal(rounds(outcome), rounds(timed))
    assert_frame_equal(events(outcome), events(timed))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CODED)
def test_codecs_with_states_give_the_same_weights_one_client_after_the_other(name: str) -> None:
    made = scenario(name, stop={"rounds": 8})
    outcome, eager = run(made), run(made, execution=EAGER)
    assert same_times(outcome, eager)
    assert apart(outcome, eager) <= 1e-9


WAIT_FOR_ALL = [
    name
    for name, said in ALL.items()
    if said["kind"]
    in {"fedbcd", "c_vfl", "ef_vfl", "easter", "pyvertical", "agg_vfl", "vimsgd", "vimadmm", "vimadmm_j", "fdml"}
]


@pytest.mark.sampled(1)
@in_turn(name=WAIT_FOR_ALL, interrupt=["lost", "resumed"])
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(name: str, interrupt: str) -> None:
    """It is away for 10 ms out of 40: in embeddings, uploads, trips and local steps."""
    assert_outages_delay_rounds_and_training_continues(ALL[name], interrupt, "40 ms")
