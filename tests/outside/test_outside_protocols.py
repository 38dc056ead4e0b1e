"""Protocols that vflsim knows by path alone, in whole runs: both worlds, outages, batching, codecs, interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fault_worlds
import pytest
from kept_runs import assert_interruptions_change_no_byte
from outside_worlds import FEEDBACK, INT8, PATHS, outside
from tiny_worlds import EAGER, RANDOM_TIMING, apart, events, metrics, rounds, run, same_times, same_weights

from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome

BOTH = pytest.mark.parametrize("kind", PATHS)
MLP = {"kind": "mlp", "hidden": [5], "embedding": 6}
ADAM = {"kind": "adam", "lr": 0.01}


@pytest.mark.sampled(1)
@BOTH
def test_weights_are_identical_in_both_worlds(kind: str) -> None:
    scenario = load(outside(kind, models__client=MLP))
    virtual, real = run(scenario), run(scenario, kind="real")
    assert same_weights(virtual, real)
    assert (virtual.info.reproducible, real.info.reproducible) == (True, False)
    losses = [metrics(outcome).groupby("round")["train_loss"].first().to_numpy()[1:] for outcome in (virtual, real)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.parametrize("codec", ["plain", INT8, FEEDBACK], ids=["plain", "int8", "feedback"])
def test_batched_runs_learn_what_eager_ones_do(kind: str, codec: Any) -> None:
    scenario = load(outside(kind, codec=codec, timing=RANDOM_TIMING))
    batched, eager = run(scenario), run(scenario, execution=EAGER)
    assert same_times(batched, eager)
    assert apart(batched, eager) <= 1e-12
    assert batched.info.one_by_one == ("clients with learners of their own are computed one by one",)


@pytest.mark.sampled(1)
@BOTH
def test_an_int8_codec_changes_what_is_learnt_and_what_messages_weigh(kind: str) -> None:
    plain, lossy = run(load(outside(kind))), run(load(outside(kind, codec=INT8)))
    for column, of in (("bytes_up", "transfer.embedding"), ("bytes_down", DOWN[kind])):
        sizes = [set(events(outcome, of)["bytes"]) for outcome in (plain, lossy)]
        assert max(sizes[1]) < 0.4 * max(sizes[0])
        assert metrics(lossy)[column].iloc[-1] < metrics(plain)[column].iloc[-1]
    assert apart(plain, lossy) > 1e-6
    assert metrics(lossy)["train_loss"].iloc[-1] == pytest.approx(metrics(plain)["train_loss"].iloc[-1], rel=0.1)


DOWN = {"two_trip": "transfer.aggregate", "three_tensors": "transfer.supervision"}


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.parametrize("codec", ["plain", FEEDBACK], ids=["plain", "feedback"])
def test_interrupted_runs_write_the_bytes_of_whole_ones(kind: str, codec: Any, tmp_path: Path) -> None:
    said = outside(kind, codec=codec, timing=RANDOM_TIMING, models__client=MLP, training__client_optimizer=ADAM)
    scenario = load(said)
    assert_interruptions_change_no_byte(scenario, tmp_path, at=(0.3, 0.6, 1))


def test_noise_protects_what_clients_upload_and_its_cost_is_reported(tmp_path: Path) -> None:
    noise = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.1, "delta": 1e-5}
    scenario = load(outside("three_tensors", {"mechanism": noise}))
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path)
    assert outcome.info.privacy is not None
    assert outcome.info.privacy.releases == 2  # 8 rounds of 5 an epoch
    assert apart(outcome, run(load(outside("three_tensors")))) > 1e-3
    assert apart(outcome, run(scenario, execution=EAGER)) <= 1e-12


# --- outages --------------------------------------------------------------------------------------------------------


def down(kind: str, interrupted: str, *periods: list[str], **changes: Any) -> Scenario:
    """Constant times: an undisturbed round takes some 16 ms; client 2 is down in ``periods``."""
    link = {"latency": "1 ms"}
    away = {"kind": "intervals", "down": list(periods), "interrupted": interrupted} if periods else "always"
    clients = [
        {"select": "all", "compute": "2 ms", "upload_delay": "0.7 ms", "link": link},
        {"select": "2", "availability": away},
    ]
    timing = {"server": {"compute": "1 ms", "link": link}, "clients": clients}
    return load(outside(kind, timing=timing, **{"stop": {"rounds": 5}, "evaluate": {"every": "100 rounds"}, **changes}))


def updates(outcome: Outcome) -> int:
    return int(metrics(outcome)["updates"].iloc[-1])


@pytest.mark.sampled(1)
@BOTH
def test_a_client_that_crashes_at_any_moment_of_a_round_joins_it_again(kind: str) -> None:
    undisturbed = run(down(kind, "lost"))
    second, third = rounds(undisturbed)["end_s"][1:3] * 1000
    unchanged = 0
    for step in range(9):
        at = second + (third - second) * step / 9 + 0.05
        outcome = run(down(kind, "lost", [f"{at} ms", f"{at + 3} ms"]))  # which asserts that no client has stalled
        assert [list(used) for used in rounds(outcome)["used"]] == [[1, 2, 3]] * 5
        if updates(outcome) == updates(undisturbed):  # no step was lost: what is learnt is the same
            assert same_weights(outcome, undisturbed)
            unchanged += 1
        else:
            assert not same_weights(outcome, undisturbed)
    assert 3 <= unchanged < 9


@BOTH
def test_a_pause_takes_time_and_changes_nothing_else(kind: str) -> None:
    undisturbed, paused = (run(down(kind, "resumed", *periods)) for periods in ([], [["20 ms", "29 ms"]]))
    assert same_weights(undisturbed, paused)
    late = rounds(paused)["end_s"].iloc[-1] - rounds(undisturbed)["end_s"].iloc[-1]
    assert 0 < late <= 0.009 + 1e-9


@pytest.mark.sampled(2)
@BOTH
@pytest.mark.parametrize("world", ["virtual", "real"])
def test_clients_that_come_and_go_end_no_run(kind: str, world: str) -> None:
    away = {"kind": "alternating", "up": "25 ms", "down": "5 ms", "interrupted": "lost"}
    pauses = {**away, "up": {"kind": "exponential", "mean": "20 ms"}, "interrupted": "resumed"}
    clients = [{"select": "all", "compute": "1 ms"}, {"select": "1", "availability": away}]
    said = outside(kind, timing={"clients": [*clients, {"select": "2", "availability": pauses}]})
    outcome = run(load(said), kind=world)
    assert len(rounds(outcome)) == 8
    assert metrics(outcome)["test_loss"].notna().all()


@pytest.mark.sampled(2)
@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_random_crashes_end_no_run(kind: str, seed: int) -> None:
    pick = fault_worlds.random.Random(seed)
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [
            {"select": "all", "compute": "1 ms", "upload_delay": {"kind": "exponential", "mean": "3 ms"}},
            *({"select": str(client), "availability": repaired(pick)} for client in (1, 2, 3)),
        ],
    }
    outcome = run(load(outside(kind, timing=timing, stop={"rounds": 40})), seed=seed, timing_only=True)
    assert len(rounds(outcome)) == 40


def repaired(pick: fault_worlds.random.Random) -> Any:
    """An availability that loses work, and is never down for good."""
    while True:
        said = fault_worlds.availability(pick, "lost")
        if said.get("repair") != "never" and "inf" not in str(said.get("down")):
            return said


@BOTH
def test_interrupted_runs_with_crashes_write_the_bytes_of_whole_ones(kind: str, tmp_path: Path) -> None:
    scenario = down(kind, "lost", ["21 ms", "30 ms"], ["40 ms", "41 ms"])
    assert_interruptions_change_no_byte(scenario, tmp_path)


@BOTH
def test_a_client_that_is_gone_for_good_is_named_in_the_error(kind: str) -> None:
    scenario = down(kind, "lost", ["21 ms", "inf"])
    with pytest.raises(Exception, match=r"client 2 went down for good at 0\.021 s"):
        run(scenario, timing_only=True)


# --- time -----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_run_without_training_has_the_same_times(kind: str) -> None:
    scenario = load(outside(kind, timing=RANDOM_TIMING))
    one, other = run(scenario), run(scenario, timing_only=True)
    assert rounds(one).equals(rounds(other))
    assert events(one).equals(events(other))


def test_local_steps_take_a_compute_time_each_and_count_as_updates() -> None:
    timing = {"clients": [{"select": "all", "compute": "2 ms"}]}
    for steps in (1, 4):
        stop = {"updates": 3 * steps * 5}
        outcome = run(load(outside("three_tensors", {"local_steps": steps}, timing=timing, stop=stop)))
        ends = rounds(outcome)["end_s"]
        assert ends.diff().dropna().to_numpy() == pytest.approx(0.002 * (1 + steps))
        assert len(events(outcome, "compute.local_step", "client-1")) == 5 * steps
        assert updates(outcome) == stop["updates"]


def test_a_message_with_three_tensors_has_one_latency_and_one_number_of_bytes() -> None:
    outcome = run(load(outside("three_tensors")))
    sent = events(outcome, "transfer.supervision", "server")
    rows = 20
    assert set(sent["bytes"]) >= {60 + 3 * 34 + rows * 10 * 4 + 10 * 6 * 8 + rows}  # float32, float64, bool
    assert len(sent) == len(events(outcome, "latency.server→client-1")) * 3


def test_flops_of_both_nets_and_of_every_trip_take_time() -> None:
    timing = {"clients": [{"select": "all", "compute": {"kind": "flops", "rate": "1 MFLOPS"}}]}
    outcome = run(load(outside("two_trip", timing=timing, partition={"clients": 3, "active": True, "by": "columns"})))
    rows, width, hidden, classes = 20, 6, 8, 10
    columns = 16  # of client 1: 64 features in 4 parts
    head = 2 * rows * (width * hidden + hidden * classes)
    embed = 2 * rows * columns * width
    expected = {"embed": embed, "predict": head, "client_step": embed + 2 * head}
    for kind, flops in expected.items():
        own = events(outcome, f"compute.{kind}", "client-1")
        own = own[(own["outcome"] == "done") & (own["round"] == -1)]
        assert (own["end_s"] - own["start_s"]).iloc[0] == pytest.approx(flops / 1e6), kind


@BOTH
def test_evaluation_may_take_time(kind: str) -> None:
    free, timed = (
        run(load(outside(kind, evaluate={"every": "2 rounds", "costs_time": costs}))) for costs in (False, True)
    )
    assert same_weights(free, timed)
    one, other = (metrics(outcome).groupby("round")["test_loss"].last() for outcome in (free, timed))
    assert other.loc[0] == one.loc[0]
    own = events(timed, "compute.evaluate", "client-1")
    lasted = (own["end_s"] - own["start_s"])[own["outcome"] == "done"]
    assert set(lasted.round(9)) == {0.002 * 180 / 20}  # test rows in mini-batches
