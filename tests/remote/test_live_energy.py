"""The energy of live runs: the simulation's for equal events, and what the events of a live run add up to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import Ended
from tiny_worlds import RANDOM_TIMING, raw, run, tiny

from vflsim.books import COMPUTE, FLOPS
from vflsim.remote.client_files import without_energy
from vflsim.remote.recorder import NotedFlops, energy_of, without_flops
from vflsim.scenario.resolve import party_timings
from vflsim.simulation.run import Outcome
from vflsim.timing.party import Power
from vflsim.world.record import OUTCOMES, Events

POWER = {"idle": "2 W", "compute": "6 W", "radio": "1.5 W", "per_byte": "1 mJ"}
AWAY = {"kind": "intervals", "down": [["0.2 s", "0.4 s"], ["0.9 s", "30 s"]], "interrupted": "lost"}
TIMED = {
    **RANDOM_TIMING,
    "server": {"compute": "10 ms", "power": POWER},
    "clients": [*RANDOM_TIMING["clients"], {"select": "all", "power": {**POWER, "idle": "(m) W"}}],
}


def events_of(outcome: Outcome) -> Events:
    """The events of a simulation, as the parties of a live run record them."""
    assert outcome.tables.events is not None
    made = Events()
    for row in outcome.tables.events.to_pandas().itertuples():
        party, peer = (-1 if pd.isna(each) else _number(each) for each in (row.party, row.peer))
        made.add(
            row.start_s, row.end_s, party, row.kind, row.round, peer, row.bytes, row.index, row.drawn_s, row.outcome,
            row.sent_s,
        )  # fmt: skip
    return made


def _number(name: str) -> int:
    return 0 if name == "server" else int(name.removeprefix("client-"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("away", [False, True])
def test_equal_events_have_the_energy_of_the_simulation(protocol: str, away: bool) -> None:
    timing = {**TIMED, "clients": [*TIMED["clients"], *([{"select": "2", "availability": AWAY}] if away else [])]}
    scenario = tiny(protocol, timing=timing, record="events", stop={"time": "2 s"}, evaluate={"every": "0.3 s"})
    outcome = run(scenario, timing_only=True)
    assert outcome.tables.rounds is not None
    rounds, rows = outcome.tables.rounds.to_pandas(), outcome.tables.metrics.to_pandas()
    powers = {party: each.power for party, each in enumerate(party_timings(scenario)) if each.power is not None}
    times = [*rounds["end_s"], *rows["time_s"]]
    found = energy_of(events_of(outcome), powers, times, rows["time_s"].iloc[-1])
    until = np.array(found.until)
    np.testing.assert_allclose(np.diff(until[: len(rounds)], prepend=0.0), rounds["energy_j"], rtol=1e-9)
    np.testing.assert_allclose(until[len(rounds) :], rows["energy_j"], rtol=1e-9)
    pd.testing.assert_frame_equal(
        found.by_party.to_pandas(), outcome.extra["energy_by_party"].to_pandas(), rtol=1e-9, atol=1e-9
    )


def test_operations_are_noted_among_the_events_and_count_when_they_end() -> None:
    events = Events()
    power = Power(idle=1.0, per_flop=0.5)
    noted = NotedFlops({2: power}, events, lambda: 3.0)
    events.add(1.0, 3.0, 2, "compute.embed", 0, -1, 0, 0, 2.0)
    assert noted.counts_flops(2)
    noted.end(COMPUTE, 3.0, 2, amount=40)
    assert energy_of(events, {2: power}, [2.0, 3.0], 4.0).until == (2.0, 23.0)
    assert {OUTCOMES[row["outcome"]] for row in without_flops(events).table} == {"done"}
    assert (FLOPS in events.kinds, len(events), len(without_flops(events))) == (True, 2, 1)


@pytest.mark.slow
def test_a_live_run_has_the_energy_of_its_events_and_the_simulations_bytes_and_operations(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    costs = {**POWER, "per_flop": "1 uJ"}
    timing = {**TIMED, "clients": [*TIMED["clients"], {"select": "1", "power": costs}]}
    said = raw({"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}, timing=timing, stop={"rounds": 8})
    said["partition"]["clients"] = 2
    scenario, live, simulated = tmp_path / "scenario.yaml", tmp_path / "live", tmp_path / "simulated"
    scenario.write_text(json.dumps(said | {"record": "events"}))
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    verified = vflsim("verify", live)
    assert verified.status == 0, verified.out + verified.err
    runs = [folder / "wait" / "seed-0" for folder in (live, simulated)]
    tables = [pd.read_parquet(one / "energy_by_party.parquet") for one in runs]
    keys = ["party", "state", "watts", "amount", "joules_each"]
    pd.testing.assert_frame_equal(tables[0][keys], tables[1][keys])
    assert (pd.read_parquet(runs[0] / "rounds.parquet")["energy_j"] > 0).all()
    short = tmp_path / "short"
    ended = vflsim("live", scenario, "--out", short, "--no-report", "--protocol", "wait", "--set", "record=rounds")
    assert ended.status == 0, ended.err
    assert vflsim("verify", short).status == 0
    assert not (short / "wait" / "seed-0" / "events.parquet").exists()
    assert (pd.read_parquet(short / "wait" / "seed-0" / "rounds.parquet")["energy_j"] > 0).all()


def test_a_failed_live_run_has_no_energy() -> None:
    outcome = run(tiny(timing=TIMED, stop={"rounds": 2}), timing_only=True)
    assert outcome.tables.rounds is not None
    assert "energy_j" in outcome.tables.metrics.column_names
    left = without_energy(outcome)
    assert left.tables.rounds is not None
    for before, after in ((outcome.tables.metrics, left.tables.metrics), (outcome.tables.rounds, left.tables.rounds)):
        assert after.column_names == [name for name in before.column_names if name != "energy_j"]
    assert outcome.extra.keys() - left.extra.keys() == {"energy_by_party"}
