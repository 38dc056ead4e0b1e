"""The bytes of every message are those that the codec gives its tensors: any other number is found, of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from protocols_by_kind import KINDS
from tiny_worlds import raw

from vflsim.results import verify_folder
from vflsim.results.by_scenario import ByScenario
from vflsim.results.frames import Frames
from vflsim.results.read import Results
from vflsim.scenario import load
from vflsim.studies.study import run_study

LOST = [{"select": "all", "availability": {"kind": "intervals", "down": [["30 ms", "55 ms"]], "period": "150 ms",
                                           "interrupted": "lost"}}]  # fmt: skip
RESUMED = [{"select": 2, "availability": {"kind": "intervals", "down": [["30 ms", "55 ms"]], "period": "150 ms",
                                          "interrupted": "resumed"}}]  # fmt: skip


def results_of(entry: dict[str, Any], out: Path, timing_only: bool = False, **changes: Any) -> Results:
    changes = {"stop": {"rounds": 7}, "evaluate": {"every": "3 rounds"}, **changes}
    scenario = load(raw({"one": entry}, **changes))
    assert run_study(scenario, out, timing_only=timing_only).failures == {}
    return Results.open(out)


def assert_sound(results: Results) -> None:
    notes: list[str] = []
    assert verify_folder(results.folder, notes.append) == []
    assert notes == []


def untested(results: Results) -> set[str]:
    """Return the kinds of messages of which a change by 8 bytes is not found."""
    scenario, missed = ByScenario(results), set()
    (run,) = results.runs
    frames = Frames(run.tables())
    transfers = frames.of("transfer.")
    for kind in transfers["kind"].unique():
        rows = transfers.index[(transfers["kind"] == kind) & (transfers["outcome"] == "done")]
        for place in rows[:: max(1, len(rows) - 1)]:
            for by in (8, -8):
                transfers.loc[place, "bytes"] += by
                found = [*scenario.problems(run, frames)]
                transfers.loc[place, "bytes"] -= by
                missed |= set() if any("the codec writes" in each for each in found) else {str(kind)}
    return missed


@pytest.mark.parametrize("name", KINDS)
def test_a_message_of_other_bytes_is_found_for_every_kind(name: str, tmp_path: Path) -> None:
    results = results_of(KINDS[name], tmp_path)
    assert_sound(results)
    assert untested(results) == set()


def test_evaluation_that_costs_time_has_known_bytes(tmp_path: Path) -> None:
    for name in ("synchronous", "asynchronous", "easter", "fdml", "agg_vfl", "fedvs", "ef_vfl", "synchronous-blinded"):
        results = results_of(KINDS[name], tmp_path / name, evaluate={"every": "3 rounds", "costs_time": True})
        assert_sound(results)
        assert untested(results) == set(), name
