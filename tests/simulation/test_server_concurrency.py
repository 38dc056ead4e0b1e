"""The key ``timing.server.concurrency``: what a scenario may say, and what it means for runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tiny_worlds import data_of, events, raw, tiny

import vflsim
from vflsim.errors import ScenarioError, VflsimError
from vflsim.scenario import load
from vflsim.scenario.resolve import party_timings
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised import obstacles

LINK = {"up": "100 kbps", "down": "100 kbps"}


def scenario(slots: int | None, protocol: Any = "synchronous", network: str = "fair", **more: Any) -> vflsim.Scenario:
    server = {"compute": "1 s", "link": LINK} | ({} if slots is None else {"concurrency": slots})
    clients = {"compute": "1 s", "power": {"idle": "1 W", "radio": "2 W"}} | more.pop("clients", {})
    timing = {"network": network, "server": server, "clients": clients}
    return tiny(protocol, timing=timing, **{"stop": {"rounds": 3}, "seeds": [0], "record": "events", **more})


@pytest.mark.parametrize("value", [0, -1, 1.5, "none", True])
def test_a_limit_is_a_whole_number_of_at_least_1(value: Any) -> None:
    with pytest.raises(ScenarioError, match=r"timing\.server\.concurrency"):
        load(raw("synchronous", timing={"server": {"concurrency": value}}))


def test_clients_have_no_such_limit() -> None:
    with pytest.raises(ScenarioError, match=r"timing\.clients\.concurrency"):
        load(raw("synchronous", timing={"clients": {"concurrency": 2}}))


def test_windows_of_connections_have_no_slots() -> None:
    with pytest.raises(ScenarioError, match=r"timing\.transport: each window of a connection"):
        load(raw("synchronous", timing={"transport": "tcp", "server": {"concurrency": 2}}))


def test_the_server_has_no_limit_unless_it_says_so() -> None:
    assert party_timings(scenario(None))[0].concurrency is None
    assert party_timings(scenario(3))[0].concurrency == 3
    assert party_timings(load(scenario(3).document.raw, ["timing.server.concurrency=5"]))[0].concurrency == 5


@pytest.mark.parametrize("network", ["fair", "fifo", "dedicated"])
def test_messages_wait_for_a_slot_with_their_radio_off_and_their_wait_is_in_the_events(
    network: str, tmp_path: Path
) -> None:
    results = vflsim.run(scenario(1, network=network), tmp_path, timing_only=True)
    (run,) = results.runs
    events = run.frame("events")
    moves = events[events["kind"].str.startswith("transfer")].sort_values("start_s")
    assert (moves["start_s"].to_numpy()[1:] >= moves["end_s"].to_numpy()[:-1]).all()
    uploads = moves[(moves["kind"] == "transfer.embedding") & (moves["round"] == 0)]
    each = uploads["end_s"] - uploads["start_s"]
    assert (uploads["start_s"] - uploads["sent_s"]).tolist() == pytest.approx([k * each.iloc[0] for k in range(4)])
    radio = pd.read_parquet(run.folder / "energy_by_party.parquet").query("state == 'radio'")["seconds"].sum()
    assert radio == pytest.approx((moves["end_s"] - moves["start_s"]).sum())


@pytest.mark.parametrize("network", ["fair", "fifo", "dedicated"])
@pytest.mark.parametrize("protocol", ["asynchronous", "t_synchronous", "ignore"])
def test_more_slots_than_messages_give_the_same_tables(protocol: str, network: str) -> None:
    its = {"t_synchronous": {"t": 2}, "ignore": {"deadline": "2 s"}}.get(protocol, {})
    away = {"availability": {"kind": "alternating", "up": "4 s", "down": "2 s", "interrupted": "resumed"}}

    def table(slots: int | None) -> pd.DataFrame:
        entry = {"it": {"kind": protocol, **its}}
        made = scenario(slots, entry, network, clients=away if network == "fifo" else {})
        return events(run_protocol(made, "it", 0, data_of(made), timing_only=True))

    assert table(None).equals(table(1_000))


def test_arrays_and_closed_forms_say_why_they_cannot() -> None:
    (problem,) = obstacles(scenario(2, record="rounds"), "synchronous")
    assert problem.key == "timing.server.concurrency"
    assert "wait for one of the 2 slots of the server" in problem.what
    with pytest.raises(VflsimError, match="slots of the server"):
        vflsim.run(scenario(2, record="rounds"), timing_only=True, path="vectorised")
    rounds = vflsim.analyze(scenario(2)).frame
    assert "timing.server.concurrency" in rounds.to_string()
