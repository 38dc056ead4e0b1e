"""Rules about links: kept by runs over every network, broken by the smallest change."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_worlds import run, tiny

from vflsim.results import RunInfo, RunTables, verify_run
from vflsim.results.facts import NetworkFacts
from vflsim.timing.capacity import Link
from vflsim.world.networks import Fair, Fifo, Tcp

SLOW = {"kind": "steps", "steps": [[0, "1 Mbps"], ["20 ms", 0], ["30 ms", "0.5 Mbps"]], "period": "40 ms"}


def a_run(network: str, up: object = SLOW, down: object = "2 Mbps") -> tuple[RunTables, RunInfo]:
    """A run whose links are slow enough for messages to wait for each other."""
    link = {"up": up, "down": down, "latency": "1 ms"}
    timing = {
        "network": network,
        "server": {"compute": "1 ms", "link": link},
        "clients": [{"select": "all", "compute": "2 ms", "link": link}],
    }
    outcome = run(tiny("synchronous", timing=timing))
    return outcome.tables, outcome.info


@pytest.fixture(scope="module", params=["fifo", "dedicated", "fair"])
def found(request: pytest.FixtureRequest) -> tuple[RunTables, RunInfo]:
    return a_run(request.param)


def changed(found: tuple[RunTables, RunInfo], change, **info: object) -> list[str]:
    tables, page = found
    events = tables.events.to_pydict()
    transfers = [k for k, kind in enumerate(events["kind"]) if kind.startswith("transfer.")]
    change(events, transfers)
    broken = verify_run(RunTables(tables.metrics, tables.rounds, events), page.model_copy(update=info))
    return [problem for problem in broken if "its links" in problem or "something else" in problem]


@pytest.mark.sampled(2)
def test_a_run_tells_its_network_and_keeps_its_rules(found) -> None:
    tables, info = found
    assert info.network == NetworkFacts(kind=info.network.kind, up=((0, 4, 1e6),), down=((0, 4, 2e6),))
    assert RunInfo.model_validate_json(info.model_dump_json()) == info
    assert verify_run(tables, info) == []


def test_a_run_tells_its_transport() -> None:
    told = {"kind": "tcp", "initial_window": 4, "idle_reset": False}
    outcome = run(tiny("synchronous", timing={"transport": told, "clients": {"link": {"up": "1 Mbps"}}}))
    info = RunInfo.model_validate_json(outcome.info.model_dump_json())
    assert info.network is not None
    assert info.network.transport == Tcp(initial_window=4, idle_reset=False)


@pytest.mark.sampled(2)
def test_a_transfer_that_beats_its_links_is_noticed(found) -> None:
    def sooner(events, transfers):
        k = max(transfers, key=lambda k: events["bytes"][k])
        events["start_s"][k] = events["end_s"][k] - 8 * events["bytes"][k] / 1e6 * (1 - 1e-6)

    (problem,) = changed(found, sooner)
    assert "is faster than its links" in problem
    assert changed(found, sooner, network=None) == []
    assert changed(found, sooner, reproducible=False, stop_reason="wall_clock") == []


def overlapping(column):
    """Let the second transfer from (``party``) or to (``peer``) the server begin before the first has ended."""

    def change(events, transfers):
        own = sorted((events["start_s"][k], k) for k in transfers if events[column][k] == "server")
        (_, first), (_, second) = own[:2]
        assert events["start_s"][second] >= events["end_s"][first]
        events["start_s"][second] = np.nextafter(events["end_s"][first], 0.0)

    return change


@pytest.mark.parametrize(("column", "says"), [("party", "its sender still sends"), ("peer", "its receiver still rec")])
def test_fifo_transfers_that_overlap_are_noticed(column, says) -> None:
    (problem,) = changed(a_run("fifo", up="1 Mbps"), overlapping(column))
    assert says in problem


def test_facts_name_the_parties_that_have_a_limit() -> None:
    links = [Link(), Link(up=5), Link(up=5, down=[[0, 3], [1, 9]]), Link(up="unlimited"), Link(up=5)]
    facts = NetworkFacts.of(Fifo(), links)
    assert (facts.kind, facts.up, facts.down) == ("fifo", ((1, 2, 5), (4, 4, 5)), ((2, 2, 9),))
    assert NetworkFacts.of(Fair(), [Link(down=[[0, 3], [1, "unlimited"]])]) == NetworkFacts(kind="fair")
