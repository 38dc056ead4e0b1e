"""What a scenario can say about links that change and latencies from files, and where its mistakes show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import ScenarioError
from vflsim.kinds import TABLES
from vflsim.scenario.load import dump, load
from vflsim.scenario.resolve import party_timings
from vflsim.timing.capacity import CAPACITIES, CapacitySteps


@pytest.fixture
def folder(tmp_path: Path, base: str) -> Path:
    """A scenario with traces beside it: ``links.yaml``."""
    text = base.replace(
        "server: {compute: 1 ms}",
        "network: {kind: fair, latency: {file: latency.csv, unit: ms}}\n"
        "  server: {compute: 1 ms, link: {up: {kind: mahimahi, file: traces/server.up}, down: 1 Gbps}}",
    ).replace(
        "link: {up: 300 Mbps}",
        "link: {up: {kind: trace, file: traces/up.csv}, down: [[0, 3 + m bps], [9 s, unlimited]]}",
    )
    (tmp_path / "links.yaml").write_text(text)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "server.up").write_text("1\n2\n")
    (tmp_path / "traces" / "up.csv").write_text("time_s,rate_bps\n0,1e6\n5,2e6\n")
    np.savetxt(tmp_path / "latency.csv", np.full((5, 5), 2.0), delimiter=",")
    return tmp_path


def test_capacities_are_listed() -> None:
    assert TABLES["capacities"] == CAPACITIES


def test_files_anywhere_in_timing_are_relative_to_the_scenario(folder: Path, tmp_path_factory, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    scenario = load(folder / "links.yaml")
    timings = party_timings(scenario)
    assert timings[0].link.up.profile().value(0.0) == 12e6
    assert timings[4].link.up.profile().value(5.0) == 2e6
    assert scenario.timing.network.latency.seconds(0, 4) == 0.002
    assert load(dump(scenario)) == scenario
    assert f"file: {folder / 'traces' / 'up.csv'}" in dump(scenario)


def test_steps_may_be_formulas_of_the_client(folder: Path) -> None:
    timings = party_timings(load(folder / "links.yaml"))
    assert timings[3].link.down == CapacitySteps(steps=((0, 6), (9, "unlimited")))


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("traces/up.csv", "0,1\n0,2\n", ("link.up", "time 0 in row 2", "allowed: times that ascend")),
        ("traces/up.csv", None, ("link.up", "cannot read", "up.csv", "No such file")),
        ("traces/server.up", "1\nx\n", ("timing.server.link.up", "server.up:2: 'x'", "allowed: a whole number")),
        ("latency.csv", "0 1\n1 0\n", ("timing.network.latency", "2 nodes for 5 parties")),
        ("latency.csv", "0 1\n-1 0\n", ("timing.network.latency", "-1 in row 2, column 1")),
        ("latency.csv", "0 1\nnan 0\n", ("timing.network.latency", "nan in row 2, column 1")),
    ],
)
def test_mistakes_in_files_show_when_the_scenario_is_loaded(folder: Path, file, text, says) -> None:
    path = folder / file
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load(folder / "links.yaml")
    for part in ("links.yaml:", *says):
        assert part in str(caught.value)


def test_time_passes_where_only_a_matrix_takes_any(base: str, tmp_path: Path) -> None:
    """``stop: time`` alone is refused only where nothing takes time."""
    (tmp_path / "latency.csv").write_text("\n".join(["1 1 1 1 1"] * 5))
    timing = {"network": {"kind": "dedicated", "latency": {"file": str(tmp_path / "latency.csv")}}}
    assert load(base, {"timing": timing}).timing.network.latency is not None
    with pytest.raises(ScenarioError, match="time would never pass"):
        load(base, {"timing": {"network": "dedicated"}})
