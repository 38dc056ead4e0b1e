"""Random faults in live runs: each ends in a result or in one error that names the party, twice alike."""

from pathlib import Path

import pytest
from fault_plans import Plan, carry_out, plan_of

PLANS = 20


def test_a_killed_client_whose_place_another_process_takes_joins_the_round(tmp_path: Path) -> None:
    carry_out(Plan("synchronous", victim=2, fault="kill", after=8, crashes=True, returns=True), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(PLANS))
def test_a_random_plan_ends_as_it_must_twice(seed: int, tmp_path: Path) -> None:
    for time in ("first", "second"):
        carry_out(plan_of(seed), tmp_path / time)


def test_the_plans_have_every_fault_and_every_end() -> None:
    plans = [plan_of(seed) for seed in range(PLANS)]
    assert {plan.fault for plan in plans} == {"kill", "cut", "freeze", "slow"}
    assert {(plan.crashes, plan.returns) for plan in plans if plan.fault in ("kill", "cut")} >= {
        (True, True), (True, False), (False, True),
    }  # fmt: skip
    assert len({plan.protocol for plan in plans}) >= 4
