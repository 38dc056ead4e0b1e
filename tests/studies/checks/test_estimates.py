"""Estimates before a run: how far the trial goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import data_of, tiny

import vflsim
from vflsim.reporting.answer import link_waited_for
from vflsim.studies.checks import estimates
from vflsim.studies.checks.describe import expectation_table
from vflsim.studies.checks.estimates import FEWEST_STEPS, TRIAL_STEPS, expectation


@pytest.mark.parametrize(
    ("messages", "steps"),
    # 4 clients: 8 messages a round, and in a coded round 12 shares besides
    [(10**6, [TRIAL_STEPS, TRIAL_STEPS]), (400, [50, 20]), (1, [FEWEST_STEPS, FEWEST_STEPS])],
)
def test_a_trial_ends_after_so_many_messages(messages: int, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "TRIAL_MESSAGES", messages)
    scenario = tiny({"wait": {"kind": "synchronous"}, "coded": {"kind": "fedvs", "K": 1, "T": 1}})
    assert [expectation(scenario, name, data_of(scenario)).steps for name in scenario.protocols] == steps


@pytest.mark.parametrize(
    ("every", "stop", "told"),
    [
        (
            "40 rounds",
            {"rounds": 200},
            "synchronous: the first after some 40 rounds, and about 5 in all; finer: `evaluate",
        ),
        ("120 rounds", {"rounds": 6000}, "synchronous: the first after some 120 rounds, and about 50 in all; finer:"),
        ("10 s", {"rounds": 200}, "synchronous: the first after some"),
        ("10 rounds", {"rounds": 200}, ""),
        ("1 rounds", {"rounds": 5}, ""),  # no grid is finer
    ],
)
def test_check_says_where_targets_are_evaluated_seldom(every: str, stop: dict[str, int], told: str) -> None:
    target = {"test_accuracy": 0.5}
    scenario = tiny("synchronous", evaluate={"every": every}, stop=stop, target=target)
    notes = expectation_table(scenario, [expectation(scenario, "synchronous", data_of(scenario), steps=20)]).notes
    seldom = [note for note in notes if note.startswith("Evaluated seldom")]
    assert len(seldom) == bool(told)
    assert told in "".join(seldom)
    without = tiny("synchronous", evaluate={"every": every}, stop=stop)
    notes = expectation_table(without, [expectation(without, "synchronous", data_of(without), steps=20)]).notes
    assert not any(note.startswith("Evaluated seldom") for note in notes)


@pytest.mark.parametrize(("trees", "rounds", "most"), [(3, 5, 3), (9, 5, 5)])
def test_a_protocol_that_ends_by_itself_bounds_its_rounds(trees: int, rounds: int, most: int) -> None:
    kind = {"kind": "secureboost", "depth": 2, "bins": 8, "packed": 32, "trees": trees}
    scenario = tiny({"trees": kind}, stop={"rounds": rounds})
    assert expectation(scenario, "trees", data_of(scenario)).rounds == most


@pytest.mark.parametrize("network", ["fair", "fifo", "dedicated"])
@pytest.mark.parametrize("end", ["up", "down"])
def test_check_says_that_links_which_change_their_rate_go_event_by_event(network: str, end: str) -> None:
    link = {"up": "5 Mbps", "down": "5 Mbps", end: {"kind": "steps", "steps": [["0 s", "5 Mbps"], ["1 s", "9 Mbps"]]}}
    timing = {"network": network, "clients": [{"select": "all", "compute": "2 ms", "link": link}]}
    (note,) = (
        note
        for note in notes_of(tiny({"it": {"kind": "fedbcd", "local_steps": 2}}, timing=timing))
        if "event by event" in note
    )
    assert note == "it: timing alone goes event by event: a link changes its rate in time."


def notes_of(scenario: vflsim.Scenario, steps: int = 20) -> list[str]:
    found = [expectation(scenario, name, data_of(scenario), steps=steps) for name in scenario.protocols]
    return [str(note) for note in expectation_table(scenario, found).notes]


FAST = {"link": {"up": "10 Mbps", "down": "10 Mbps"}}


def contended(
    network: str, server: dict[str, Any], protocols: Any = "synchronous", transport: Any = "fluid", **more: Any
) -> vflsim.Scenario:
    link = {"up": "1 Mbps", "down": "1 Mbps"}
    clients = {"compute": "1 ms", "link": {"up": "1 Mbps", "down": "300 kbps"}}
    server = {"compute": "1 ms", "link": link, **server}
    timing = {"network": network, "transport": transport, "server": server, "clients": clients}
    return tiny(protocols, timing=timing, record="events", stop={"rounds": 20}, seeds=[0], **more)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("network", "server", "waits"),
    [("fair", {}, True), ("fifo", {}, True), ("dedicated", {}, False), ("dedicated", {"concurrency": 1}, True)],
)
def test_check_names_the_link_that_waits_most_in_the_words_of_the_report(
    network: str, server: dict[str, Any], waits: bool, tmp_path: Path
) -> None:
    scenario = contended(network, server)
    told = [note for note in notes_of(scenario) if note.startswith("Links: ")]
    assert len(told) == waits
    results = vflsim.run(scenario, tmp_path, timing_only=True)
    said = link_waited_for("synchronous", {"breakdown": vflsim.plot(results, "breakdown").numbers})
    assert [note.removeprefix("Links: synchronous: ") for note in told] == [text.removeprefix("Its ") for text in said]
    assert all("messages wait longest on the server's" in note for note in told)


@pytest.mark.parametrize(
    ("transport", "told"),
    [
        ("fluid", "fluid (no slow start)"),
        ("tcp", "tcp (a connection's window begins with 10 packets of 1,448 B; a pause makes it smaller again)"),
        (
            {"kind": "tcp", "initial_window": 4, "idle_reset": False},
            "tcp (a connection's window begins with 4 packets of 1,448 B; a pause leaves it as it is)",
        ),
    ],
)
def test_check_says_how_messages_share_links_and_how_they_begin_to_move(transport: Any, told: str) -> None:
    assert f"Network: dedicated; transport: {told}." in notes_of(contended("dedicated", {}, transport=transport))


def test_check_says_nothing_of_links_that_have_no_limit() -> None:
    assert not any(note.startswith("Network: ") for note in notes_of(tiny("synchronous", timing={"network": "fair"})))
    limitless = {"network": "fair", "transport": "tcp", "clients": {"link": {"latency": "5 ms"}}}
    assert any(note.startswith("Network: ") for note in notes_of(tiny("synchronous", timing=limitless)))


def test_a_trial_of_shared_links_says_the_same_of_a_step_as_one_without_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = contended("fair", {})
    with_events = expectation(scenario, "synchronous", data_of(scenario), steps=20)
    monkeypatch.setattr(estimates, "MOST_MESSAGES", 0)  # as for very many clients
    without = expectation(scenario, "synchronous", data_of(scenario), steps=20)
    assert (without.longest_wait, bool(with_events.longest_wait)) == ("", True)
    assert replace(with_events, longest_wait="") == without


@pytest.mark.parametrize(
    ("network", "server", "protocols", "line"),
    [
        ("fifo", {}, "synchronous", ""),  # the server's line is never idle
        ("fifo", FAST, {"coded": {"kind": "fedvs", "K": 1, "T": 1}}, "coded: the server's"),  # clients send shares
        ("fifo", {"concurrency": 1}, "asynchronous", "asynchronous: the server's "),
        ("fair", {"concurrency": 1}, "asynchronous", ""),  # has no lines
    ],
)
def test_check_warns_of_a_serial_line_that_is_idle_with_work_behind_it(
    network: str, server: dict[str, Any], protocols: Any, line: str
) -> None:
    warned = [note for note in notes_of(contended(network, server, protocols)) if "stands idle" in note]
    assert len(warned) == bool(line)
    assert all(f"Warning: {line}" in note and "% of the time while messages wait for it" in note for note in warned)
