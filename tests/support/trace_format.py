"""The Trace Event Format, as far as it binds us: what a viewer needs to show a trace as it was meant.

Written from the format's own document and from what Perfetto's importer insists on (slices of one thread must nest; a
flow binds to the slice that encloses it on its thread; timestamps are microseconds).
"""

from collections import defaultdict
from decimal import Decimal

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "M": {"name", "pid", "tid", "args"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}
METADATA = {
    "process_name": str,
    "process_sort_index": int,
    "thread_name": str,
    "thread_sort_index": int,
}


def violations(trace: dict) -> list[str]:
    """Every way in which a trace (JSON read with ``parse_float=Decimal``) breaks the format."""
    if not isinstance(trace.get("traceEvents"), list):
        return ["no list of traceEvents"]
    events = trace["traceEvents"]
    found = (
        [f"displayTimeUnit {trace['displayTimeUnit']!r}"] if trace.get("displayTimeUnit") not in ("ms", "ns") else []
    )
    for event in events:
        found += _alone(event)
    if found:
        return found
    return [*_named(events), *_nested(events), *_flows(events)]


def slices(events: list[dict]) -> dict[tuple[int, int], list[dict]]:
    """Complete events by (process, thread)."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def _alone(event: dict) -> list[str]:
    """What can be said of one event without the others."""
    phase = event.get("ph")
    if phase not in REQUIRED:
        return [f"phase {phase!r}"]
    if missing := REQUIRED[phase] - event.keys():
        return [f"{phase} without {sorted(missing)}: {event}"]
    found = [f"{key} is no whole number: {event}" for key in ("pid", "tid") if not isinstance(event.get(key, 0), int)]
    for key in ("ts", "dur"):
        value = event.get(key, 0)
        if not isinstance(value, int | Decimal) or isinstance(value, bool) or value < 0:
            found.append(f"{key} is {value!r}: {event}")
        elif Decimal(value).as_tuple().exponent < -3:
            found.append(f"{key} is finer than a nanosecond: {event}")
    if phase == "C" and not (
        event["args"] and all(isinstance(v, int | Decimal) and not isinstance(v, bool) for v in event["args"].values())
    ):
        found.append(f"a counter without numbers: {event}")
    if phase == "M":
        kind = METADATA.get(event["name"])
        key = event["name"].partition("_")[2]
        if kind is None or not isinstance(event["args"].get(key), kind):
            found.append(f"metadata: {event}")
    if phase == "f" and event["bp"] != "e":
        found.append(f"a flow that does not end in the slice around it: {event}")
    return found


def _named(events: list[dict]) -> list[str]:
    """Every process and thread that something happens on has one name and one place, and no number means two."""
    found = []
    meta = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            place = event["pid"] if event["name"].startswith("process") else (event["pid"], event["tid"])
            meta[event["name"], place].append(event["args"])
    found += [f"said twice: {key}" for key, said in meta.items() if len(said) > 1]
    tracks = slices(events)
    for pid in {event["pid"] for event in events}:
        found += [f"{what} of {pid}?" for what in ("process_name", "process_sort_index") if (what, pid) not in meta]
    for track in tracks:
        found += [f"{what} of {track}?" for what in ("thread_name", "thread_sort_index") if (what, track) not in meta]
    threads = [tid for _, tid in tracks]
    if len(set(threads)) < len(threads):
        found.append("one thread number in two processes")
    names = [(pid, said[0]["name"]) for (what, (pid, *_)), said in _threads(meta).items() if what == "thread_name"]
    if len(set(names)) < len(names):
        found.append("two threads of one name")
    return found


def _threads(meta: dict) -> dict:
    return {(what, place): said for (what, place), said in meta.items() if isinstance(place, tuple)}


def _nested(events: list[dict]) -> list[str]:
    """On one thread two slices are apart, or one is inside the other."""
    found = []
    for track, own in slices(events).items():
        own = sorted(own, key=lambda event: (event["ts"], -event["dur"]))
        stack: list[Decimal] = []
        for event in own:
            start, end = Decimal(event["ts"]), Decimal(event["ts"]) + Decimal(event["dur"])
            while stack and stack[-1] <= start:
                stack.pop()
            if stack and end > stack[-1]:
                found.append(f"overlaps on {track}: {event}")
            stack.append(end)
    return found


def _flows(events: list[dict]) -> list[str]:
    """Flows come in pairs of a start and an end that is not earlier; each binds to the slice meant for it.

    An importer sorts by time, keeps the file's order at one time, and binds a flow to the slice that was begun last on
    its thread: that one must still be running, or be as short as the flow itself.
    """
    found, ends, running = [], defaultdict(list), {}
    for event in sorted(events, key=lambda event: Decimal(event.get("ts", 0))):
        place = event["pid"], event.get("tid")
        if event["ph"] == "X":
            running[place] = event
        elif event["ph"] in ("s", "f"):
            ends[event["cat"], event["name"], event["id"]].append(event)
            around = running.get(place)
            if around is None or event["ts"] > around["ts"] + around["dur"]:
                found.append(f"a flow in no slice: {event}")
    for key, pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"]:
            found.append(f"flow {key} is no pair")
    return found
