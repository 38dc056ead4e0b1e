"""Scenarios drawn at random: every run keeps every invariant, and timing alone gives the same events as training."""

import os
import random
from typing import Any

import pytest
from fault_worlds import FEW_CRASHES, checked
from pandas.testing import assert_frame_equal
from thorough import is_thorough
from tiny_worlds import events, rounds, run, tiny

from vflsim.scenario.models import Scenario
from vflsim.world import outages


def drawn(seed: int) -> Scenario:
    """A scenario that mixes what a scenario can say."""
    pick = random.Random(seed)
    clients = pick.randint(1, 4)
    kind = pick.choice(["synchronous", "ignore", "t_synchronous", "asynchronous", "centralised"])
    protocol: dict[str, Any] = {"kind": kind}
    if kind == "ignore":
        protocol |= pick.choice([{"fastest": pick.randint(1, clients)}, {"deadline": pick.choice(["1 ms", "9 ms"])}])
    if kind == "t_synchronous":
        protocol |= {"t": pick.randint(1, clients), "cancel": pick.random() < 0.5}
    own = False
    if kind in ("t_synchronous", "asynchronous"):
        protocol["first_fill"] = pick.choice(["zeros", "upload"])
        if pick.random() < 0.5:
            protocol |= {"max_staleness": pick.choice([0, 1, 3]), "bounds": pick.choice(["client_age", "row_age"])}
        own = not protocol.get("cancel") and pick.random() < 0.5
    delays = ["0 s", "2 ms", {"kind": "exponential", "mean": "(3*i) ms"}, {"kind": "uniform", "low": 0, "high": "9 ms"}]
    client = {
        "select": "all",
        "compute": pick.choice(delays),
        "upload_delay": pick.choice(delays),
        "link": {
            "latency": pick.choice([0, "1 ms", {"kind": "uniform", "low": 0, "high": "4 ms"}]),
            **pick.choice([{}, {"up": "3 Mbps", "down": "5 Mbps"}]),
        },
        "activation": pick.choice(["immediate", {"kind": "poisson", "rate": "200 /s", "busy": "queue"}]),
    }
    return tiny(
        {"it": protocol},
        timing={
            "network": pick.choice(["fair", "fifo", "dedicated"]),
            "transport": {"kind": "tcp", "initial_window": 1} if seed % 3 == 0 else "fluid",
            "server": {"compute": pick.choice(["1 ms", {"kind": "exponential", "mean": "1 ms"}])},
            "clients": client,
        },
        partition={"clients": clients, "by": "columns"},
        training__batches="own" if own else "shared",
        training__last_batch=pick.choice(["keep", "drop"]),
        training__batch=pick.choice([7, 20, 90]),
        models__aggregate=pick.choice(["mean", "sum", "max", "concat", "weighted"]),
        stop=pick.choice([{"rounds": 20}, {"time": "60 ms"}, {"updates": 20}, {"epochs": 1.5}]),
        evaluate={"every": pick.choice(["3 rounds", "5 ms", "4 updates"]), "costs_time": pick.random() < 0.4},
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(30))
def test_every_invariant_holds_and_training_changes_no_event(seed: int) -> None:
    scenario = drawn(seed)
    full, timing = run(scenario), run(scenario, timing_only=True)  # both are verified
    assert_frame_equal(events(full), events(timing))
    assert_frame_equal(rounds(full), rounds(timing))


SCENARIOS = int(os.environ.get("VFLSIM_FAULTS", "60" if is_thorough() else "20"))
TRAINED = 5
"""Every so many scenarios are trained, too."""


KINDS = ["", "fedvs", "local", "easter", "blinded", "overlapping"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS, ids=["any", *KINDS[1:]])
@pytest.mark.parametrize("first", range(0, SCENARIOS, 10))
def test_every_run_with_faults_ends_in_a_sound_result_or_a_clear_error(first: int, kind: str, monkeypatch) -> None:
    monkeypatch.setattr(outages, "CRASHES_WITHOUT_A_STEP", FEW_CRASHES)
    for seed in range(first, min(first + (5 if kind else 10), SCENARIOS)):
        outcome = checked(seed, kind=kind)
        if seed % TRAINED == 0:
            trained = checked(seed, timing_only=False, kind=kind)
            assert str(trained.error) == str(outcome.error)
            assert_frame_equal(events(trained), events(outcome))
            assert_frame_equal(rounds(trained), rounds(outcome))
