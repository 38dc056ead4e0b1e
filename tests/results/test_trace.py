"""Traces against the format's own rules, and against the events that they were made of."""

import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from toy_runs import toy_results
from trace_format import slices, violations

from vflsim.errors import ResultsError
from vflsim.results import NotRecordedError, Results, RunTables, write_run
from vflsim.results.trace import levels_of, write_trace


def read(path: Path) -> dict:
    return json.loads(
        path.read_text(), parse_float=Decimal, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )


def phase(trace: dict, letter: str) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == letter]


def names(trace: dict, what: str) -> dict[int, str]:
    key = "pid" if what == "process_name" else "tid"
    return {event[key]: event["args"]["name"] for event in phase(trace, "M") if event["name"] == what}


def rewritten(folder: Path, **columns) -> Results:
    """The only run of a folder, with these columns of its events replaced."""
    run = Results.open(folder).runs[0]
    tables = run.tables()
    events = {name: tables.events[name].to_pylist() for name in tables.events.column_names}
    changed = {name: list(map(change, *(events[key] for key in keys))) for name, (change, *keys) in columns.items()}
    write_run(run.folder, RunTables(tables.metrics, tables.rounds, events | changed), {}, run.info)
    return Results.open(folder)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = toy_results(tmp_path / "toy", seeds=1, horizon=6)
    for protocol in ("ignore", "t-sync", "async"):
        for file in (folder / protocol / "seed-0").iterdir():
            file.unlink()
        (folder / protocol / "seed-0").rmdir()
    return folder


def test_a_trace_of_all_runs_keeps_every_rule_of_the_format(results: Results, tmp_path: Path) -> None:
    trace = read(write_trace(results, tmp_path / "trace.json"))
    assert violations(trace) == []
    assert list(names(trace, "process_name").values()) == [f"{r.protocol}, seed {r.seed}" for r in results.runs]


def test_the_validator_finds_what_is_wrong(small: Path) -> None:
    text = write_trace(Results.open(small)).read_text()
    first = next(line for line in text.splitlines() if '"ph": "X"' in line and '"dur": 20000.000' in line)
    for old, new, problem in (
        ('"ph": "s"', '"ph": "t"', "phase 't'"),
        ('"dur": 100000.000', '"dur": 170000.000', "overlaps on"),
        ('"bp": "e", ', "", "without ['bp']"),
        (first, first.replace('"dur": 20000.000', '"dur": -1'), "dur is -1"),
        ('"thread_name"', '"thread_title"', "metadata"),
        ('"name": "client-1 link up"', '"name": "client-1 upload"', "two threads of one name"),
    ):
        assert old in text
        found = violations(json.loads(text.replace(old, new), parse_float=Decimal))
        assert any(problem in each for each in found), problem


def test_every_activity_is_a_slice_with_its_times_and_facts(small: Path) -> None:
    results = Results.open(small)
    trace = read(write_trace(results))
    threads = names(trace, "thread_name")
    shown = {
        (threads[s["tid"]].split()[0], s["name"], s["args"]["index"]): s
        for s in phase(trace, "X")
        if "outcome" in s["args"]
    }
    events = results.runs[0].frame("events")
    assert len(shown) == len(events)
    for event in events.itertuples():
        slice_ = shown[event.party, event.kind, event.index]
        assert float(slice_["ts"]) == pytest.approx(1e6 * event.start_s, abs=1e-3)
        assert float(slice_["ts"] + slice_["dur"]) == pytest.approx(1e6 * event.end_s, abs=1e-3)
        said = slice_["args"]
        assert said["outcome"] == event.outcome
        assert said["round"] == event.round
        assert said.get("to") == (event.peer if isinstance(event.peer, str) else None)
        assert said.get("bytes", 0) == event.bytes
        for name in ("drawn_s", "sent_s"):
            assert float(said.get(name, "nan")) == pytest.approx(getattr(event, name), nan_ok=True)


def test_tracks_are_parties_in_order_each_with_what_it_does(small: Path) -> None:
    trace = read(write_trace(Results.open(small)))
    order = sorted((e["args"]["sort_index"], e["tid"]) for e in phase(trace, "M") if e["name"] == "thread_sort_index")
    threads = [names(trace, "thread_name")[tid] for _, tid in order]
    # The toy's server answers all of its clients at once, and hears from several at a time: eight tracks each.
    assert threads[:2] == ["rounds", "server compute"]
    own = [name for name in threads if name.startswith("client-2 ")]
    assert own == [f"client-2 {lane}" for lane in ("compute", "upload", "latency", "link up", "link down")]
    parties = list(dict.fromkeys(name.split()[0] for name in threads[1:]))
    assert parties == ["server", *(f"client-{m}" for m in range(1, 9))]
    assert "server link up 8" in threads
    assert "server link up 9" not in threads


def test_an_arrow_goes_from_the_senders_slice_to_the_receivers(small: Path) -> None:
    trace = read(write_trace(Results.open(small)))
    threads = names(trace, "thread_name")
    starts, ends = ({flow["id"]: flow for flow in phase(trace, letter)} for letter in "sf")
    events = Results.open(small).runs[0].frame("events")
    sent = events[events["kind"].str.startswith("transfer") & (events["outcome"] == "done")]
    assert sorted(
        (threads[starts[k]["tid"]].split()[0], threads[ends[k]["tid"]].split()[0], round(float(starts[k]["ts"]) / 1e3))
        for k in starts
    ) == sorted((e.party, e.peer, round(1e3 * e.start_s)) for e in sent.itertuples())


def test_messages_that_never_arrived_have_no_arrow(small: Path) -> None:
    results = rewritten(
        small, outcome=(lambda kind, old: "lost" if kind.startswith("transfer") else old, "kind", "outcome")
    )
    trace = read(write_trace(results))
    assert violations(trace) == []
    assert not phase(trace, "s")
    assert not phase(trace, "f")
    moving = [s for s in phase(trace, "X") if s["cat"] == "transfer"]
    assert {s["args"]["outcome"] for s in moving if "outcome" in s["args"]} == {"lost"}
    assert any("from" in s["args"] for s in moving), "they did occupy the receiver's link"


def test_messages_that_take_no_time_still_have_their_arrow(small: Path) -> None:
    results = rewritten(
        small,
        end_s=(lambda kind, start, end: start if kind.startswith("transfer") else end, "kind", "start_s", "end_s"),
    )
    trace = read(write_trace(results))
    assert violations(trace) == []
    assert phase(trace, "s")


def test_rounds_and_counters_are_the_tables(small: Path) -> None:
    results = Results.open(small)
    trace = read(write_trace(results))
    rounds = [s for s in phase(trace, "X") if s["cat"] == "round"]
    table = results.rounds
    assert [s["args"]["used"] for s in rounds] == [list(used) for used in table["used"]]
    assert [float(s["ts"]) / 1e6 for s in rounds] == pytest.approx(table["start_s"].tolist(), abs=1e-9)
    counters = phase(trace, "C")
    metrics = results.metrics
    accuracy = [float(c["args"]["test_accuracy"]) for c in counters if c["name"] == "test_accuracy"]
    assert accuracy == metrics["test_accuracy"].tolist()
    sent = [c["args"] for c in counters if c["name"] == "bytes sent"]
    assert [each["up"] for each in sent] == metrics["bytes_up"].tolist()
    assert {c["name"] for c in counters} == {"bytes sent", "test_accuracy", "test_loss", "train_loss"}


def test_what_was_not_measured_is_no_point_of_a_counter(small: Path) -> None:
    run = Results.open(small).runs[0]
    tables = run.tables()
    metrics = {name: tables.metrics[name].to_numpy().copy() for name in tables.metrics.column_names}
    metrics["test_loss"][1] = np.nan
    write_run(run.folder, RunTables(metrics, tables.rounds, tables.events), {}, run.info)
    counters = phase(read(write_trace(Results.open(small))), "C")
    points = {name: len([c for c in counters if c["name"] == name]) for name in ("test_loss", "test_accuracy")}
    assert points["test_loss"] == points["test_accuracy"] - 1


def test_protocol_and_seed_choose_runs(results: Results, tmp_path: Path) -> None:
    def runs(**wanted) -> list[str]:
        return list(names(read(write_trace(results, tmp_path / "t.json", **wanted)), "process_name").values())

    assert runs(protocol="async") == ["async, seed 0", "async, seed 1", "async, seed 2"]
    assert runs(seed=1) == [f"{name}, seed 1" for name in results.protocols]
    assert runs(protocol="wait", seed=2) == ["wait, seed 2"]
    with pytest.raises(ResultsError, match="no run of protocol 'asyn' with seed 7"):
        runs(protocol="asyn", seed=7)


def test_runs_without_events_are_left_out_and_none_is_an_error(results: Results, tmp_path: Path) -> None:
    folder = toy_results(tmp_path / "bare", seeds=1, horizon=4, record="rounds")
    with pytest.raises(NotRecordedError, match="events of this run were not kept"):
        write_trace(Results.open(folder))
    assert not (folder / "trace.json").exists()


def test_a_name_that_ends_in_gz_is_compressed_and_says_the_same(small: Path, tmp_path: Path) -> None:
    results = Results.open(small)
    plain, packed = write_trace(results), write_trace(results, tmp_path / "t.json.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size / 5
    assert packed.read_bytes() == write_trace(results, tmp_path / "again.json.gz").read_bytes()


def test_a_trace_appears_whole_or_not_at_all(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("in the middle")

    path = write_trace(Results.open(small))
    before = path.read_bytes()
    monkeypatch.setattr(sys.modules["vflsim.results.trace"], "_counters", broken)
    with pytest.raises(RuntimeError):
        write_trace(Results.open(small))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert not [file for file in small.iterdir() if file.name.startswith(".")]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ResultsError, match="cannot be written"):
        write_trace(Results.open(small), blocked / "trace.json")


def test_it_is_written_in_parts_of_the_same_text(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_trace(Results.open(small)).read_bytes()
    monkeypatch.setattr(sys.modules["vflsim.results.trace"], "_PART", 7)
    assert write_trace(Results.open(small)).read_bytes() == whole


def test_activities_that_overlap_get_tracks_beside_each_other(small: Path) -> None:
    # Uploads as they cannot be: all begin at 0 and end one after the other; they need as many tracks as there are.
    change = (lambda kind, start, index: 0.0 if kind == "upload" else start, "kind", "start_s", "index")
    trace = read(write_trace(rewritten(small, start_s=change)))
    assert violations(trace) == []
    threads = names(trace, "thread_name")
    uploads = [len(own) for (_, tid), own in slices(trace["traceEvents"]).items() if " upload" in threads[tid]]
    assert set(uploads) == {1}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), min_size=1, max_size=25))
def test_tracks_are_as_few_as_can_be_and_free_of_overlaps(intervals: list[tuple[int, int]]) -> None:
    spans = sorted((start, start + lasts) for start, lasts in intervals)
    start, end = np.array(spans, np.int64).T
    levels = levels_of(start, end)
    at_once = max(sum(a <= tick < b for a, b in spans) for tick in range(40))
    assert levels.max() + 1 <= max(at_once, 1) or any(a == b for a, b in spans)
    for level in set(levels.tolist()):
        own = np.flatnonzero(levels == level)
        assert (start[own][1:] >= end[own][:-1]).all()
