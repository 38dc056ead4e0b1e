"""Whom steps wait for, from arrays: the same shares as from the events of the same rounds."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_worlds import data_of, tiny

from vflsim.exploring.rounds import NOBODY, UnwrittenRun, UploadArrivals
from vflsim.plotting.waits import step_waits
from vflsim.scenario.models import Scenario
from vflsim.simulation.vectorised import run_vectorised
from vflsim.studies.checks.trials import by_events

ROUNDS = 40
SERVER = {"kind": "mlp", "hidden": [8]}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "wait": {"kind": "synchronous"},
    "excluding": {"kind": "ignore", "exclude": "N"},
    "fastest": {"kind": "ignore", "fastest": 3},
    "deadline": {"kind": "ignore", "deadline": "20 ms"},
    "t-sync": {"kind": "t_synchronous", "t": 3},
    "cancel": {"kind": "t_synchronous", "t": 3, "cancel": True},
    "async": {"kind": "asynchronous"},
    "coded": {"kind": "fedvs", "K": 1, "T": 1},
    "steps": {"kind": "fedbcd", "local_steps": 2},
}


def world(protocol: dict[str, Any], delay: Any, rounds: int = ROUNDS) -> Scenario:
    return tiny(
        partition={"clients": 5, "by": "columns"},
        timing={
            "network": "dedicated",
            "server": {"compute": "1 ms", "link": {"up": "100 Mbps", "down": "100 Mbps", "latency": "1 ms"}},
            "clients": [
                {"select": "all", "compute": "2.3 ms", "link": {"up": "50 Mbps", "down": "50 Mbps", "latency": "1 ms"}},
                {"select": "4..5", "upload_delay": delay},
            ],
        },
        protocols={"it": protocol},
        models={"client": {"kind": "polynomial", "degree": 1, "embedding": 6}, "aggregate": "mean", "server": SERVER},
        stop={"rounds": rounds},
        record="rounds",
    )


def by_arrays(scenario: Scenario) -> dict[int, float]:
    its = scenario.protocols["it"].protocol
    arrivals = UploadArrivals(tuple(its.participants(scenario.clients, scenario.symbols)))
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario), seen=arrivals.take)
    assert outcome.error is None
    return dict(arrivals.shares())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("delay", [{"kind": "exponential", "mean": "30 ms"}, "30 ms"], ids=["random", "constant"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_shares_are_those_of_events(name: str, delay: Any) -> None:
    scenario = world(PROTOCOLS[name], delay)
    outcome = by_events(scenario, "it", data_of(scenario), ROUNDS, "events")
    assert outcome.error is None
    waits, found = step_waits(UnwrittenRun.of(outcome)), by_arrays(scenario)
    clients = [client for client in found if client != NOBODY]
    assert found == pytest.approx({NOBODY: found[NOBODY], **dict(zip(clients, waits.shares(clients), strict=True))})
    assert sum(found.values()) == pytest.approx(1)


def test_rounds_that_wait_for_everybody_wait_for_stragglers_alone() -> None:
    found = by_arrays(world(PROTOCOLS["wait"], {"kind": "shifted_exponential", "shift": "1 s", "mean": "1 s"}))
    assert found[4] + found[5] == pytest.approx(1)
    assert min(found[4], found[5]) > 0.2


def test_clients_that_arrive_together_share_a_step() -> None:
    assert by_arrays(world(PROTOCOLS["wait"], "30 ms")) == {NOBODY: 0, 1: 0, 2: 0, 3: 0, 4: 0.5, 5: 0.5}


def test_a_deadline_waits_for_nobody() -> None:
    assert by_arrays(world(PROTOCOLS["deadline"], "10 s"))[NOBODY] == 1


def test_without_a_round_there_are_no_shares() -> None:
    assert UploadArrivals((1, 2)).shares() == {}
