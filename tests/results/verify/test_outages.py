"""Rules about outages: each is kept by runs with outages, and notices when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from tiny_worlds import run, tiny

from vflsim.results.store.schema import RunTables
from vflsim.results.verify import verify_run
from vflsim.results.verify.frames import Downtime
from vflsim.simulation.run import Outcome

TIMING: dict[str, Any] = {
    "server": {"compute": "1 s"},
    "clients": [
        {"select": "all", "compute": "1 s", "upload_delay": "m s", "link": {"latency": "0.5 s"}},
        {"select": "1", "availability": {"kind": "alternating", "up": 6, "down": 3, "interrupted": "lost"}},
        {"select": "2", "availability": {"kind": "alternating", "up": 2.5, "down": 1, "interrupted": "resumed"}},
    ],
}


@pytest.fixture(scope="module")
def sound() -> Outcome:
    """A run in which client 1 crashes and client 2 pauses, several times."""
    scenario = tiny("asynchronous", timing=TIMING, partition={"clients": 3, "by": "columns"}, stop={"time": "40 s"})
    return run(scenario, timing_only=True)  # which verifies it


def broken(sound: Outcome, change: Callable[[pd.DataFrame], Any], **facts: Any) -> list[str]:
    assert sound.tables.events is not None
    frame = sound.tables.events.to_pandas().astype({"party": object, "kind": object, "peer": object, "outcome": object})
    change(frame)
    events = {name: frame[name].tolist() for name in frame}
    events["peer"] = [peer if isinstance(peer, str) else None for peer in events["peer"]]
    tables = RunTables(sound.tables.metrics, sound.tables.rounds, events)
    return verify_run(tables, sound.info.model_copy(update=facts))


def one(frame: pd.DataFrame, **where: Any) -> int:
    """The first event with these values, after the first outages."""
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return int(frame[frame["start_s"] > 7].index[0])


def test_a_sound_run_breaks_nothing(sound: Outcome) -> None:
    assert broken(sound, lambda frame: None) == []
    assert sound.info.crashing == (1,)
    outcomes = set(sound.tables.events["outcome"].to_pylist())  # type: ignore[index]
    assert outcomes == {"done", "lost", "unfinished"}


def outage_renumbered(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="outage"), "index"] = 7


def outages_overlap(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="outage", party="client-2"), "end_s"] += 4


def outage_unfinished(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="outage", party="client-2"), "outcome"] = "unfinished"


def works_while_down(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="upload", party="client-1", outcome="lost"), "end_s"] += 1


def begins_while_down(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="compute.embed", party="client-1"), "start_s"] -= 0.5


def receives_while_down(frame: pd.DataFrame) -> None:
    start = frame.loc[one(frame, kind="outage", party="client-1"), "start_s"]
    frame.loc[one(frame, kind="transfer.gradient", peer="client-1"), ["start_s", "end_s", "outcome"]] = [
        start + 1,
        start + 1,
        "done",
    ]


def lost_without_an_outage(frame: pd.DataFrame) -> None:
    frame.loc[one(frame, kind="upload", party="client-3"), "outcome"] = "lost"


def pause_not_waited_for(frame: pd.DataFrame) -> None:
    uploads = frame[(frame["kind"] == "upload") & (frame["party"] == "client-2") & (frame["outcome"] == "done")]
    paused = uploads[uploads["end_s"] - uploads["start_s"] > 2.5].index[0]
    frame.loc[paused, "end_s"] -= 0.5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (outage_renumbered, "is out of turn"),
        (outages_overlap, "begins before the previous outage has ended"),
        (outage_unfinished, "is unfinished, but not the last"),
        (works_while_down, "happens while its party is down"),
        (begins_while_down, "happens while its party is down"),
        (receives_while_down, "arrives while its receiver is down"),
        (lost_without_an_outage, "was lost, but neither party was down"),
        (pause_not_waited_for, "did not last as long as was drawn"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_caught(sound: Outcome, change: Callable[[pd.DataFrame], Any], sentence: str) -> None:
    problems = broken(sound, change)
    assert any(sentence in problem for problem in problems), problems


def test_who_only_pauses_may_be_at_work_while_down(sound: Outcome) -> None:
    assert any("happens while" in problem for problem in broken(sound, lambda frame: None, crashing=(1, 2)))


def test_processes_with_clocks_of_their_own_are_not_held_against_each_other(sound: Outcome) -> None:
    assert not any("while its party is down" in problem for problem in broken(sound, works_while_down, path="live"))


def test_seconds_down_are_the_overlap_with_the_outages() -> None:
    outages = [(1.0, 2.0), (4.0, 7.0)]
    spans = [(0.0, 0.5), (0.0, 1.5), (1.2, 1.8), (0.0, 9.0), (2.0, 4.0), (6.5, 8.0), (1.0, 2.0), (7.0, 9.0)]
    times = [*outages, *spans, (0.0, 9.0)]
    kinds, parties = ["outage"] * 2 + ["upload"] * (len(spans) + 1), [*"a" * (len(times) - 1), "b"]
    columns = {"kind": kinds, "party": parties}
    columns |= {name: [span[place] for span in times] for place, name in enumerate(("start_s", "end_s"))}
    events = pd.DataFrame(columns).astype({"kind": "category", "party": "category"})
    found = Downtime(events).seconds(events[2:])
    expected = [sum(max(0.0, min(end, up) - max(start, down)) for down, up in outages) for start, end in spans]
    assert found.tolist() == [*expected, 0.0]
