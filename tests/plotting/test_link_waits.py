"""How long messages wait on links: worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import tiny

import vflsim
from vflsim.plotting.breakdown import DOWN, link_waits
from vflsim.reporting.answer import link_waited_for


@pytest.mark.parametrize(
    ("network", "waits", "said"),
    [
        ("fair", [0.75] * 4, "750 ms each on average, and 750 ms for client 1."),  # at a quarter of the rate
        ("fifo", [0.0, 0.25, 0.5, 0.75], "375 ms each on average, and 750 ms for client 4."),
        ("dedicated", [0.0] * 4, ""),
    ],
)
def test_four_messages_at_once_through_the_servers_link(
    network: str, waits: list[float], said: str, tmp_path: Path
) -> None:
    def scenario(bits: Any) -> vflsim.Scenario:
        link = {"up": bits, "down": bits}
        timing = {"network": network, "server": {"compute": "1 s", "link": link}, "clients": {"compute": "1 s"}}
        return tiny("synchronous", timing=timing, stop={"rounds": 1}, seeds=[0], record="events")

    sizes = vflsim.run(scenario("1 Mbps"), tmp_path / "sizes", timing_only=True).runs[0].frame("events")
    size = int(sizes.loc[sizes["kind"] == "transfer.embedding", "bytes"].iloc[0])
    results = vflsim.run(scenario(float(4 * 8 * size)), tmp_path / "run", timing_only=True)
    found = link_waits(results.runs[0])
    assert [(link, client) for link, client, *_ in found] == [(DOWN, m) for m in (1, 2, 3, 4)]
    assert [seconds / messages for _, _, messages, seconds in found] == pytest.approx(waits)
    sentences = link_waited_for("synchronous", {"breakdown": vflsim.plot(results, "breakdown").numbers})
    assert sentences == ([f"Its messages wait longest on the server's down-link, {said}"] if said else [])


def test_time_in_which_a_party_is_away_is_no_wait_for_a_link(tmp_path: Path) -> None:
    away = {"kind": "intervals", "down": [["2 s", "5 s"]], "interrupted": "resumed"}
    timing = {
        "server": {"compute": "1 s", "link": {"down": "10 kbps"}},
        "clients": [{"select": "all", "compute": "1 s"}, {"select": 1, "availability": away}],
    }
    scenario = tiny("synchronous", timing=timing, stop={"rounds": 1}, seeds=[0], record="events")
    (run,) = vflsim.run(scenario, tmp_path, timing_only=True).runs
    transfers = run.frame("events")
    last = transfers[transfers["kind"] == "transfer.embedding"]["end_s"].max()
    waits = {client: seconds for link, client, _, seconds in link_waits(run) if link == DOWN}
    assert waits[1] < last - 1 - 3 + 1e-9
    assert all(seconds > 0 for seconds in waits.values())
