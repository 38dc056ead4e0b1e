"""Runs a scenario on both paths and compares what they leave on disk. Imported by the tests of the vectorised path."""

import tempfile
from pathlib import Path
from typing import Any

from tiny_worlds import data_of, tiny

from vflsim.results.store.write import write_run
from vflsim.results.verify.runs import verify_run
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import obstacles, run_vectorised


def quick(protocol: dict[str, Any], **changes: Any) -> Scenario:
    """A tiny scenario for one protocol, called ``it``, on links without contention."""
    changes.setdefault("record", "rounds")
    changes["timing"] = {"network": "dedicated", **changes.get("timing", {})}
    return tiny({"it": protocol}, **changes)


def written(outcome: Outcome, folder: Path) -> dict[str, bytes]:
    """What is in the files of a run."""
    if outcome.error is not None:
        raise outcome.error
    assert verify_run(outcome.tables, outcome.info) == []
    write_run(folder, outcome.tables, {}, outcome.info, "rounds", outcome.extra)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def assert_same_bytes(scenario: Scenario, seed: int = 0) -> Outcome:
    """Both paths leave the same files, the same counts and the same reason to stop; gives the vectorised outcome."""
    assert obstacles(scenario, "it") == []
    data = data_of(scenario, "it")
    quick = run_vectorised(scenario, "it", seed, data)
    event = run_protocol(scenario, "it", seed, data, timing_only=True)
    with tempfile.TemporaryDirectory() as folder:
        one, other = written(event, Path(folder) / "event"), written(quick, Path(folder) / "vectorised")
    assert set(one) == {"metrics.parquet", "rounds.parquet", *(f"{name}.parquet" for name in event.extra)}
    assert one == other
    for fact in ("stop_reason", "counts", "participants", "network", "timing_only", "reproducible"):
        assert getattr(quick.info, fact) == getattr(event.info, fact), fact
    assert (event.info.path, quick.info.path) == ("event", "vectorised")
    return quick
