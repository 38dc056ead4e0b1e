"""How long messages wait on links: worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_worlds import tiny

import vflsim
from vflsim.reporting.answer import link_waited_for
from vflsim.results.events import DONE, Activities, activities
from vflsim.results.facts import NetworkFacts
from vflsim.results.link_waits import DOWN, LinkUse
from vflsim.results.store.run import RecordedRun


def use_of(run: RecordedRun) -> LinkUse:
    assert run.info.network is not None
    return LinkUse(activities(run), run.info.network)


@pytest.mark.sampled(1)
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
    found = use_of(results.runs[0]).waits()
    assert [(link, client) for link, client, *_ in found] == [(DOWN, m) for m in (1, 2, 3, 4)]
    assert [seconds / messages for _, _, messages, seconds in found] == pytest.approx(waits)
    sentences = link_waited_for("synchronous", {"breakdown": vflsim.plot(results, "breakdown").numbers})
    assert sentences == ([f"Its messages wait longest on the server's down-link, {said}"] if said else [])


def test_waits_for_windows_are_not_taken_for_waits_for_links(tmp_path: Path) -> None:
    link = {"up": "10 Mbps", "down": "10 Mbps", "latency": "50 ms"}
    transport = {"kind": "tcp", "initial_window": 1}
    timing = {"network": "dedicated", "transport": transport, "server": {"link": link}, "clients": {"link": link}}
    scenario = tiny("synchronous", timing=timing, training__batch=64, stop={"rounds": 2}, record="events")
    results = vflsim.run(scenario, tmp_path, timing_only=True)
    (sentence,) = link_waited_for("synchronous", {"breakdown": vflsim.plot(results, "breakdown").numbers})
    assert "-link or for a window of its connection, " in sentence


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
    waits = {client: seconds for link, client, _, seconds in use_of(run).waits() if link == DOWN}
    assert waits[1] < last - 1 - 3 + 1e-9
    assert all(seconds > 0 for seconds in waits.values())


def moves(*rows: tuple[int, int, float, float, float], away: tuple[int, float, float] | None = None) -> Activities:
    """Events of messages (from, to, sent, moving from, to) without latency, of 1 byte each; and of one outage."""
    sender, receiver, sent, began, ended = (list(column) for column in zip(*rows, strict=True))
    kinds = [0] * len(rows)
    if away is not None:
        party, down, up = away
        sender, receiver, sent = [*sender, party], [*receiver, -1], [*sent, math.nan]
        began, ended, kinds = [*began, down], [*ended, up], [*kinds, 1]
    count = len(kinds)
    whole, real = np.zeros(count, np.int64), np.full(count, math.nan)
    return Activities(
        start=np.array(began, float), end=np.array(ended, float), party=np.array(sender), peer=np.array(receiver),
        kind=np.array(kinds), round=whole, bytes=whole + 1, index=whole, drawn=real, sent=np.array(sent, float),
        outcome=np.full(count, DONE), kinds=("transfer.ball", "outage"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("events", "line", "share"),
    [
        (moves((0, 1, 0, 0, 2), (0, 2, 0, 2, 4)), "the server's up-link", 0.0),  # one after the other
        (moves((1, 3, 0, 0, 4), (2, 3, 0, 4, 6)), "client-2's up-link", 4 / 6),  # its receiver is busy
        (moves((1, 3, 0, 0, 4), (2, 3, 0, 4, 6), (2, 1, 0, 1, 2)), "client-2's up-link", 3 / 6),
        (moves((1, 3, 0, 0, 4), (0, 3, 1, 4, 6)), "the server's up-link", 3 / 6),
        (moves((1, 3, 0, 0, 4), (2, 3, 0, 4, 6), away=(2, 1, 2)), "client-2's up-link", 3 / 6),
        (moves((1, 0, 0, 0, 4), (2, 0, 0, 4, 6)), "the server's up-link", 0.0),  # the server's line is never idle
    ],
)
def test_a_line_is_idle_while_what_waits_for_it_waits_for_the_other_end(
    events: Activities, line: str, share: float
) -> None:
    assert LinkUse(events, NetworkFacts(kind="fifo")).idlest_line() == (line, pytest.approx(share))
