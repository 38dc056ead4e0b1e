"""Runs a scenario on both paths and compares what they leave on disk. Imported by the tests of the vectorised path."""

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

from tiny_worlds import data_of, tiny

from vflsim.results.store.write import write_file
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import obstacles, run_vectorised


def quick(protocol: str | dict[str, Any], **changes: Any) -> Scenario:
    """A tiny scenario for one protocol, called ``it``, on links without contention."""
    changes.setdefault("record", "rounds")
    changes["timing"] = {"network": "dedicated", **changes.get("timing", {})}
    return tiny({"it": {"kind": protocol} if isinstance(protocol, str) else protocol}, **changes)


def recorded(scenario: Scenario) -> Scenario:
    """The same scenario with a table of events, and without the outages in which clients pause."""
    said = deepcopy(scenario.document.raw)
    timing: dict[str, Any] = said["timing"]
    entries = timing["clients"] if isinstance(timing["clients"], list) else [timing["clients"]]
    for entry in entries:
        entry.pop("availability", None)
    return load({**said, "record": "events"})


def written(outcome: Outcome, folder: Path) -> dict[str, bytes]:
    """What a run's tables are as Parquet files."""
    if outcome.error is not None:
        raise outcome.error
    tables = {**outcome.tables.named(), **outcome.extra}
    return {name: write_file(folder / name, table).read_bytes() for name, table in tables.items()}


def assert_same_bytes(scenario: Scenario, seed: int = 0) -> Outcome:
    """Both paths leave the same files and the same facts, which are sound; gives the vectorised outcome."""
    assert obstacles(scenario, "it") == []
    data = data_of(scenario, "it")
    quick = run_vectorised(scenario, "it", seed, data)
    event = run_protocol(scenario, "it", seed, data, timing_only=True)
    with tempfile.TemporaryDirectory() as folder:
        one, other = written(event, Path(folder) / "event"), written(quick, Path(folder) / "vectorised")
    assert set(one) == {"metrics", "rounds", *event.extra} | {scenario.record.tables} - {"summary"}
    assert one == other
    assert verify_run(event.tables, event.info) == []
    ours, theirs = (outcome.info.model_dump(exclude={"path", "wall_clock_s"}) for outcome in (quick, event))
    assert ours == theirs
    assert (event.info.path, quick.info.path) == ("event", "vectorised")
    return quick
