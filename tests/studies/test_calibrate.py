"""Calibration of runs: the timing behind their events, with the FLOPs of each operation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_worlds import raw

import vflsim
from vflsim.errors import DataError, ResultsError, ScenarioError
from vflsim.plotting.delays import calibration
from vflsim.results.read import Results
from vflsim.scenario.resolve import party_timings
from vflsim.studies.calibrate import calibrate, log_of

ROUNDS = 120
HIDDEN: dict[str, Any] = {
    "network": "dedicated",
    "server": {"compute": {"kind": "flops", "fixed": "1 ms", "rate": "20 MFLOPS"}},
    "clients": [
        {
            "select": "all",
            "compute": {
                "kind": "flops",
                "fixed": "2 ms",
                "rate": "4 MFLOPS",
                "jitter": {"kind": "lognormal", "mean": 1, "sigma": 0.2},
            },
            "link": {"up": "2 Mbps", "down": "5 Mbps", "latency": {"kind": "uniform", "low": "1 ms", "high": "2 ms"}},
            "upload_delay": {"kind": "exponential", "mean": "4 ms"},
        }
    ],
}


def said(timing: dict[str, Any], **changes: Any) -> dict[str, Any]:
    protocols = changes.pop("protocols", {"wait": {"kind": "synchronous"}})
    return raw(protocols, timing=timing, stop={"rounds": ROUNDS}, evaluate={"every": "1000 rounds"}, **changes)


def mean_round(scenario: dict[str, Any], folder: Path) -> float:
    run = vflsim.run(scenario, folder, timing_only=True, progress=False).runs[0]
    return float(run.round_durations().mean())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated") / "source"
    vflsim.run(said(HIDDEN, record="events"), folder, timing_only=True, progress=False)
    return folder


@pytest.fixture(scope="module")
def fitted(source: Path) -> dict[str, Any]:
    return dict(calibrate(source, alike=True).preset()["timing"])


def test_a_runs_own_events_give_back_its_timing(fitted: dict[str, Any]) -> None:
    server = fitted["server"]["compute"]["operations"]["server_step"]
    assert server == {"kind": "flops", "fixed": pytest.approx(1e-3, rel=1e-4), "rate": pytest.approx(20e6, rel=1e-4)}
    [clients] = fitted["clients"]
    assert clients["select"] == "all"
    every = clients["compute"]["others"]
    assert (every["fixed"], every["rate"]) == (pytest.approx(2e-3, rel=0.1), pytest.approx(4e6, rel=0.1))
    assert clients["upload_delay"]["kind"] == "exponential"
    assert clients["upload_delay"]["mean"] == pytest.approx(4e-3, rel=0.1)
    link = clients["link"]
    assert (link["up"], link["down"]) == (pytest.approx(2e6, rel=0.15), pytest.approx(5e6, rel=0.35))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training__batch": 40},
        {"partition__clients": 2},
        {"protocols": {"bcd": {"kind": "fedbcd", "local_steps": 2}}},
    ],
    ids=["itself", "batch 40", "2 clients", "fedbcd"],
)
def test_runs_that_were_held_out_are_predicted_within_four_per_cent(
    changes: dict[str, Any], fitted: dict[str, Any], tmp_path: Path
) -> None:
    """120 rounds on each side, whose means vary by about 1 %."""
    truth = mean_round(said(HIDDEN, record="rounds", **changes), tmp_path / "truth")
    assert mean_round(said(fitted, record="rounds", **changes), tmp_path / "again") == pytest.approx(truth, rel=0.04)


def test_every_operation_has_its_flops_also_of_clients_at_their_own_pace(tmp_path: Path) -> None:
    slow = {**HIDDEN, "clients": [*HIDDEN["clients"], {"select": 2, "upload_delay": "200 ms"}]}
    protocols = {"async": {"kind": "asynchronous"}}
    vflsim.run(said(slow, protocols=protocols, record="events"), tmp_path, timing_only=True, progress=False)
    results = Results.open(tmp_path)
    log = log_of(results.runs[0], results.folder)
    steps = [len(log.operations[client, "embed"].size) for client in (1, 2)]
    assert steps[0] > 2 * steps[1]
    assert all((each.size > 0).all() for each in log.operations.values())


def test_a_protocol_with_a_deadline_has_its_flops_too(tmp_path: Path) -> None:
    protocols = {"due": {"kind": "ignore", "deadline": "40 ms"}}
    vflsim.run(said(HIDDEN, protocols=protocols, record="events"), tmp_path, timing_only=True, progress=False)
    results = Results.open(tmp_path)
    log = log_of(results.runs[0], results.folder)
    assert set(log.operations) >= {(0, "server_step"), (1, "embed"), (4, "client_step")}
    assert all((each.size > 0).all() for each in log.operations.values())


def test_each_client_can_have_an_entry_of_its_own(source: Path) -> None:
    timing = calibrate(source).timing
    assert [entry["select"] for entry in timing["clients"]] == [1, 2, 3, 4]
    assert len(party_timings(vflsim.load(said(dict(timing))))) == 5


def test_one_run_of_several_is_named(tmp_path: Path) -> None:
    protocols = {"wait": {"kind": "synchronous"}, "two": {"kind": "ignore", "fastest": 2}}
    vflsim.run(said(HIDDEN, protocols=protocols, record="events"), tmp_path, timing_only=True, progress=False)
    with pytest.raises(ScenarioError, match=r"there are 2 runs\n  allowed: wait/0, two/0"):
        calibrate(tmp_path)
    with pytest.raises(ScenarioError, match="there is no run 'wait/1'"):
        calibrate(tmp_path, "wait/1")
    assert calibrate(tmp_path, "two/0", alike=True).source.endswith("two/seed-0")


def test_what_cannot_be_calibrated_says_why(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        calibrate(tmp_path / "none")
    (tmp_path / "log.txt").write_text("")
    with pytest.raises(DataError, match=r"is neither a results folder nor a \.csv file"):
        calibrate(tmp_path / "log.txt")
    with pytest.raises(ScenarioError, match=r"--run wait/0 of a log"):
        calibrate(tmp_path / "log.csv", "wait/0")
    (tmp_path / "log.csv").write_text("party,activity,start,end,bytes\nclient-1,transfer.embedding,0,1,9\n")
    with pytest.raises(DataError, match="the log has no computations"):
        calibrate(tmp_path / "log.csv")
    with pytest.raises(ResultsError, match=r"no computation begins after 1e\+06 s"):
        calibrate(source, after=1e6)
    vflsim.run(said(HIDDEN, record="rounds"), tmp_path / "rounds", timing_only=True, progress=False)
    with pytest.raises(ResultsError, match="the events of this run were not kept"):
        calibrate(tmp_path / "rounds")


@pytest.mark.usefixtures("unrendered")
def test_the_figure_has_the_numbers_of_every_fit(source: Path) -> None:
    found = calibrate(source, alike=True)
    numbers = calibration(found).numbers
    names = {f"{fit.party}: {fit.activity}" for fit in found.fits}
    assert set(numbers["quantiles"]["fit"]) == names
    grown = {f"{fit.party}: {fit.activity}" for fit in found.fits if fit.per_unit}
    assert set(numbers["sizes"]["fit"]) == grown != set()


@pytest.mark.slow
def test_a_live_run_without_emulated_delays_is_calibrated_and_simulated_again(tmp_path: Path) -> None:
    """How near the prediction is depends on the machine: ``benchmarks/calibration.py`` measures it."""
    scenario, live = tmp_path / "scenario.yaml", tmp_path / "live"
    scenario.write_text(json.dumps(said({"network": "dedicated"}, record="events", partition__clients=2)))
    words = ["live", str(scenario), "--delays", "none", "--out", str(live), "--no-report"]
    subprocess.run([sys.executable, "-m", "vflsim", *words], check=True)
    found = calibrate(live, alike=True)
    named = {fit.activity: fit for fit in found.fits if fit.party == "clients"}
    assert {"compute.embed", "compute.client_step", "messages up", "messages down", "latency"} <= named.keys()
    assert all((fit.measured.seconds > 0).all() for fit in named.values())
    assert len(named["messages up"].measured.seconds) >= 2 * (ROUNDS - 1)
    assert len(named["messages down"].measured.seconds) >= 2 * (ROUNDS - 3)
    assert np.isfinite(named["compute.embed"].measured.size).all()
    timing = dict(found.preset()["timing"])
    assert mean_round(said(timing, record="rounds", partition__clients=2), tmp_path / "again") > 0
