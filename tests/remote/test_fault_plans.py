"""Random faults in live runs: each ends in a result or in one error that names the party, twice alike."""

import shutil
import signal
from pathlib import Path
from time import sleep

import pytest
from fault_plans import ROUNDS, SHORT_S, Plan, Played, carry_out, plan_of

from vflsim.remote.channel import LostError

PLANS = 20


@pytest.mark.slow
def test_a_killed_client_whose_place_another_process_takes_joins_the_round(tmp_path: Path) -> None:
    carry_out(Plan("synchronous", victim=2, fault="kill", after=8, crashes=True, returns=True), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(PLANS))
def test_a_random_plan_ends_as_it_must_twice(seed: int, tmp_path: Path) -> None:
    for time in ("first", "second"):
        carry_out(plan_of(seed), tmp_path / time)


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "fault", "returns"), [(1, "kill", True), (3, "cut", True), (2, "kill", False)])
def test_a_client_that_is_connected_to_others_goes_and_another_process_takes_its_place_or_none(
    victim: int, fault: str, returns: bool, tmp_path: Path
) -> None:
    carry_out(Plan("fedvs", victim=victim, fault=fault, after=10, crashes=True, returns=returns), tmp_path / "run")


@pytest.mark.slow
def test_a_server_that_computes_between_runs_gives_signs_of_life(tmp_path: Path) -> None:
    played = Played(tmp_path / "run", "synchronous", (), timeout=SHORT_S, rounds=2)
    try:
        assert played.server.run("it", 0).error is None
        played.server.idle()
        sleep(1.5 * SHORT_S)
        assert played.server.run("it", 1).error is None
        played.end()
        assert [played.statuses(client) for client in (1, 2)] == [[0], [0]]
    finally:
        played.kill()


@pytest.mark.slow
def test_a_run_is_kept_if_a_client_is_killed_after_its_end_without_the_part_of_an_earlier_run(tmp_path: Path) -> None:
    played = Played(tmp_path / "run", "synchronous", ())
    try:
        assert "without the events" not in played.server.run("it", 0).note, "a part of client-2 is there"
        parts = played.file.parent / "parts" / "it"
        shutil.copytree(parts / "seed-0", parts / "seed-1")  # as a process with the same parts would leave it
        outcome = played.run(
            lambda progress: progress.metrics.get("round") == ROUNDS, lambda: played.send(2, signal.SIGKILL), seed=1
        )
        assert outcome.error is None
        assert "without the events and weights of client-2: no parts in" in outcome.note
        assert {name.partition(".")[0] for name in outcome.weights} == {"server", "client-1"}
        assert (parts / "seed-1" / "client-1").is_dir()
        with pytest.raises(LostError, match=r"the connection to client-2 (ended|broke)"):
            played.server.run("it", 2)
    finally:
        played.kill()


def test_the_plans_have_every_fault_and_every_end() -> None:
    plans = [plan_of(seed) for seed in range(PLANS)]
    assert {plan.fault for plan in plans} == {"kill", "cut", "freeze", "slow"}
    assert {(plan.crashes, plan.returns) for plan in plans if plan.fault in ("kill", "cut")} >= {
        (True, True), (True, False), (False, True),
    }  # fmt: skip
    assert len({plan.protocol for plan in plans}) >= 4
