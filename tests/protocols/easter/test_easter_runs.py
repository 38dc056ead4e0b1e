"""Whole runs of EASTER and its baselines: crashes, interruptions, closed forms, the vectorised path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from away_clients import assert_outages_delay_rounds_and_training_continues
from both_paths import assert_same_bytes, quick
from closed_form_checks import seen
from kept_runs import assert_two_interruptions_change_no_byte
from protocols_by_kind import KINDS
from thorough import in_turn
from tiny_worlds import RANDOM_TIMING, events, raw, rounds, run, tiny

from vflsim.codecs.frame import ONLY, frame_bytes

OURS = {name: KINDS[name] for name in ("easter", "local", "pyvertical", "agg_vfl")}
every = pytest.mark.parametrize("name", OURS)


@every
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    momentum = {"kind": "sgd", "lr": 0.05, "momentum": 0.8}
    rules = {"training__client_optimizer": {"kind": "adam", "lr": 0.01}, "training__server_optimizer": momentum}
    evaluate = {"every": "3 rounds"}
    scenario = tiny({"it": OURS[name]}, timing=RANDOM_TIMING, stop={"rounds": 7}, evaluate=evaluate, **rules)
    assert_two_interruptions_change_no_byte(scenario, tmp_path)


@in_turn(name=[name for name in OURS if name != "local"], interrupt=["lost", "resumed"])
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(name: str, interrupt: str) -> None:
    """It is away for 10 ms out of 40: in both trips."""
    assert_outages_delay_rounds_and_training_continues(OURS[name], interrupt, "40 ms")


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


@every
def test_timing_alone_gives_the_same_rounds(name: str) -> None:
    scenario = tiny({"it": OURS[name]}, timing=RANDOM_TIMING, stop={"rounds": 8})
    assert rounds(run(scenario)).equals(rounds(run(scenario, timing_only=True)))


@in_turn(
    name=["local", "pyvertical", "agg_vfl"],  # easter's are those of test_easter_times.py
    compute={
        "time": "40 ms",
        "random": {"kind": "exponential", "mean": "40 ms"},
        "flops": {"kind": "flops", "rate": "1e5 FLOPS"},
    },
)
def test_the_law_of_a_round_agrees_with_its_simulation(name: str, compute: Any) -> None:
    link = {"up": "100 kbps", "down": "100 kbps"}
    delay = {"kind": "exponential", "mean": "m ms"}
    timing = {
        "network": "dedicated",
        "server": {"compute": compute},
        "clients": [{"select": "all", "compute": compute, "link": link, "upload_delay": delay}],
    }
    said = raw({"it": OURS[name]}, timing=timing, training__last_batch="drop", record="rounds")
    checked = seen(said, 100, steps=400)
    assert checked.wrong == []
    assert checked.forms["none"] == checked.forms["bounds"] == 0
    assert checked.checks["simulated"] > 0


@pytest.mark.parametrize("name", ["pyvertical", "agg_vfl"])
def test_synchronous_rounds_are_the_same_bytes_on_both_paths(name: str) -> None:
    assert_same_bytes(quick(KINDS[name], timing=RANDOM_TIMING, stop={"rounds": 12}))


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
