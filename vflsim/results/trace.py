"""Export runs as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: JSON in the Trace Event Format.

A run is a process, a track is a thread. Slices on one track must nest, never overlap, so every party has one track per
kind of activity (computing, delays, sending, receiving, …), and further ones if activities of a kind overlap, as
messages on dedicated or fair links do. A message is a slice on its sender's and on its receiver's track, with an arrow
(a flow) between them if it arrived. Metrics are counters. Times are µs with three decimals.
"""

import gzip
import heapq
import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflsim.errors import ResultsError
from vflsim.party_names import titled
from vflsim.results.events import Activities, Ints, activities, activity
from vflsim.results.read import NotRecordedError, Results, StoredRun
from vflsim.results.store.schema import split_of
from vflsim.results.store.write import write_file
from vflsim.streams import party_name
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

LANES = ("compute", "activation", "upload", "share", "latency", "link up", "link down", "outage", "other")
"""Tracks of a party, from top to bottom; further tracks of a kind follow it."""
_LANE = {name: lane for lane, name in enumerate(LANES)} | {"transfer": LANES.index("link up")}
_DOWN = LANES.index("link down")
_THREADS = 1_000_000
"""Thread numbers of process p start at p times this, so that each number is unique."""
_PART = 10_000
"""Events written at a time."""


def write_trace(
    results: Results, path: Path | str | None = None, protocol: str | None = None, seed: int | None = None
) -> Path:
    """Write runs (all, or those of one protocol or seed) as one trace, whole or not at all; return its path.

    ``path`` defaults to ``trace.json`` in the results folder; with the ending ``.gz`` the file is compressed, which
    both viewers read. Raises ResultsError if there is no such run or the file cannot be written, NotRecordedError if no
    run kept its events.
    """
    runs = _chosen(results, protocol, seed)
    path = results.folder / "trace.json" if path is None else Path(path)
    parts = _document(results, runs)
    return write_file(path, _compressed(parts) if path.suffix == ".gz" else parts)


def _chosen(results: Results, protocol: str | None, seed: int | None) -> list[StoredRun]:
    wanted = [run for run in results.runs if protocol in (None, run.protocol) and seed in (None, run.seed)]
    if not wanted:
        asked = [f"protocol {protocol!r}"] * (protocol is not None) + [f"seed {seed}"] * (seed is not None)
        raise ResultsError(
            f"no run of {' with '.join(asked)}",
            str(results.folder),
            f"protocols {', '.join(results.protocols)}; seeds {', '.join(map(str, results.seeds))}",
        )
    recorded = [run for run in wanted if run.has("events")]
    if not recorded:
        wanted[0].table("events")  # raises the error with the remedy
        raise NotRecordedError("no run kept its events", str(results.folder))
    return recorded


def _document(results: Results, runs: Sequence[StoredRun]) -> Iterator[bytes]:
    """Yield the JSON object in parts."""
    yield b'{"displayTimeUnit": "ms", "otherData": %s, "traceEvents": [' % _json({"scenario": results.name}).encode()
    lead = b"\n"
    for process, run in enumerate(runs, start=1):
        lines: list[str] = []
        for line in _events(run, process):
            lines.append(line)
            if len(lines) == _PART:
                yield lead + ",\n".join(lines).encode()
                lead, lines = b",\n", []
        yield lead + ",\n".join(lines).encode()
        lead = b",\n"
    yield b"\n]}\n"


def _compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        for part in parts:
            file.write(part)
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _events(run: StoredRun, process: int) -> Iterator[str]:
    """Yield the trace events of one run, a line of JSON each: names of tracks, then slices, flows and counters."""
    yield _metadata("process_name", process, 0, name=f"{run.protocol}, seed {run.seed}")
    yield _metadata("process_sort_index", process, 0, sort_index=process)
    if run.has("rounds"):
        yield from _rounds(run, process)
    events = activities(run)
    events = events.where(np.lexsort((events.end, events.start)))
    moved = events.end > events.start
    received = np.flatnonzero(events.is_a("transfer") & (events.peer >= 0) & (moved | events.done))
    lanes = np.array([_LANE.get(activity(kind), _LANE["other"]) for kind in events.kinds], np.int64)[events.kind]
    tracks = _Tracks(
        np.concatenate([events.party, events.peer[received]]),
        np.concatenate([lanes, np.full(len(received), _DOWN)]),
        _nanoseconds(np.concatenate([events.start, events.start[received]])),
        _nanoseconds(np.concatenate([events.end, events.end[received]])),
        process * _THREADS + 1,
    )
    for thread, name in tracks.names.items():
        yield _metadata("thread_name", process, thread, name=name)
        yield _metadata("thread_sort_index", process, thread, sort_index=thread)
    yield from _slices(events, received, tracks, process)
    yield from _counters(run, process)


class _Tracks:
    """Assigns every slice (given by party, lane, start and end in ns) to a track.

    ``thread`` has the track of each slice, ``names`` the name of each track; tracks are numbered from top to bottom.
    """

    def __init__(self, party: Ints, lane: Ints, start: Ints, end: Ints, thread: int) -> None:
        self.start, self.end = start, end
        self.thread, self.names = np.zeros(len(start), np.int64), {}
        order = np.lexsort((end, start, lane, party))
        keys = np.stack([party, lane], axis=1)[order]
        firsts = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1))
        for group in np.split(order, firsts[1:]) if len(order) else []:
            levels = levels_of(start[group], end[group])
            self.thread[group] = thread + levels
            name = f"{titled(party_name(int(party[group[0]])))} {LANES[lane[group[0]]]}"
            for level in range(int(levels.max()) + 1):
                self.names[thread + level] = name if level == 0 else f"{name} {level + 1}"
            thread += int(levels.max()) + 1

    def at(self, row: int, process: int, *, lasting: bool = True) -> str:
        """Return a slice's track and times as JSON members; a flow has no duration and starts with its slice."""
        start = int(self.start[row])
        lasts = f', "dur": {_us(int(self.end[row]) - start)}' if lasting else ""
        return f'"pid": {process}, "tid": {self.thread[row]}, "ts": {_us(start)}{lasts}'


def levels_of(start: Ints, end: Ints) -> Ints:
    """Assign each interval (ascending by start) to the lowest level where it overlaps no earlier one."""
    levels = np.zeros(len(start), np.int64)
    if (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return levels
    free: list[int] = []  # free levels; taken levels, by their end
    taken: list[tuple[int, int]] = []
    count = 0
    for position, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while taken and taken[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(taken)[1])
        level = heapq.heappop(free) if free else count
        count = max(count, level + 1)
        heapq.heappush(taken, (ends, level))
        levels[position] = level
    return levels


def _slices(events: Activities, received: Ints, tracks: _Tracks, process: int) -> Iterator[str]:
    """Yield a slice for every activity; for a transfer also one at its receiver, with an arrow if it arrived."""
    kinds = [_json(kind) for kind in events.kinds]
    categories = [_json(activity(kind)) for kind in events.kinds]
    there = np.zeros(len(events), np.int64)  # index of the receiver's slice; 0: none
    there[received] = np.arange(len(events), len(events) + len(received))
    for first in range(0, len(events), _PART):
        rows = slice(first, first + _PART)
        part = events.where(rows)
        names = ("kind", "party", "peer", "round", "bytes", "index", "drawn", "sent", "outcome")
        columns = (getattr(part, name).tolist() for name in names)
        for row, other, kind, party, peer, round_, size, index, drawn, sent, outcome in zip(
            range(first, first + len(part)), there[rows].tolist(), *columns, strict=True
        ):
            args = f'"index": {index}, "outcome": "{OUTCOMES[outcome]}"'
            args += f', "round": {round_}' if round_ >= 0 else ""
            args += f', "drawn_s": {drawn!r}' if math.isfinite(drawn) else ""
            args += f', "sent_s": {sent!r}' if math.isfinite(sent) else ""
            args += f', "to": {json.dumps(titled(party_name(peer)))}' if peer >= 0 else ""
            args += f', "bytes": {size}' if categories[kind] == '"transfer"' else ""
            what = f'{{"ph": "X", "name": {kinds[kind]}, "cat": {categories[kind]}'
            yield f'{what}, {tracks.at(row, process)}, "args": {{{args}}}}}'
            if not other:
                continue
            args = f'"index": {index}, "from": {json.dumps(titled(party_name(party)))}, "bytes": {size}'
            yield f'{what}, {tracks.at(other, process)}, "args": {{{args}}}}}'
            if OUTCOMES[outcome] == "done":
                flow = f'"name": "message", "cat": "message", "id": "{process}.{row}"'
                yield f'{{"ph": "s", {flow}, {tracks.at(row, process, lasting=False)}}}'
                yield f'{{"ph": "f", "bp": "e", {flow}, {tracks.at(other, process, lasting=False)}}}'


def _rounds(run: StoredRun, process: int) -> Iterator[str]:
    """Yield the rounds as slices on their own track, above the parties."""
    thread = process * _THREADS
    yield _metadata("thread_name", process, thread, name="rounds")
    yield _metadata("thread_sort_index", process, thread, sort_index=thread)
    for batch in run.table("rounds").to_batches(_PART):
        for row in batch.to_pylist():
            start, end = _nanoseconds(np.array([row["start_s"], row["end_s"]])).tolist()
            at = f'"pid": {process}, "tid": {thread}, "ts": {_us(start)}, "dur": {_us(end - start)}'
            args = _json({name: row[name] for name in ("used", "missing", "fresh")})
            yield f'{{"ph": "X", "name": "round {row["round"]}", "cat": "round", {at}, "args": {args}}}'


def _counters(run: StoredRun, process: int) -> Iterator[str]:
    """Yield counters: each loss and metric on its own scale, and the bytes sent so far."""
    metrics = run.frame("metrics")
    curves = [name for name in metrics.columns if split_of(name) is not None]
    for row in metrics.to_dict("records"):
        at = f'"pid": {process}, "tid": 0, "ts": {_us(int(_nanoseconds(row["time_s"])))}'
        sent = {name: row[f"bytes_{name}"] for name in ("up", "down", "peer")}
        yield f'{{"ph": "C", "name": "bytes sent", {at}, "args": {_json(sent)}}}'
        for name in curves:
            if math.isfinite(row[name]):
                yield f'{{"ph": "C", "name": {_json(name)}, {at}, "args": {_json({name: row[name]})}}}'


def _metadata(what: str, process: int, thread: int, **args: Any) -> str:
    return f'{{"ph": "M", "name": "{what}", "pid": {process}, "tid": {thread}, "ts": 0, "args": {_json(args)}}}'


def _nanoseconds(seconds: Floats | float) -> Ints:
    """Convert to whole nanoseconds, so that adjacent slices stay adjacent after rounding."""
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
