"""The bytes of every message are those that the codec gives its tensors: any other number is found, of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from protocols_by_kind import KINDS, SOME
from tiny_worlds import BASE, raw

from vflsim.results import verify_folder
from vflsim.results.read import Results
from vflsim.results.store.schema import RunTables
from vflsim.results.verify.frames import Frames
from vflsim.results.verify.scenario import ByScenario
from vflsim.scenario import load
from vflsim.studies.study import run_study

LOST = [{"select": "all", "availability": {"kind": "intervals", "down": [["30 ms", "55 ms"]], "period": "150 ms",
                                           "interrupted": "lost"}}]  # fmt: skip
RESUMED = [{"select": 2, "availability": {"kind": "intervals", "down": [["30 ms", "55 ms"]], "period": "150 ms",
                                          "interrupted": "resumed"}}]  # fmt: skip


def timed(more: list[dict[str, Any]]) -> dict[str, Any]:
    return {**BASE["timing"], "clients": [*BASE["timing"]["clients"], *more]}


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
    tables = run.tables()
    events = tables.events.to_pandas()
    for kind in {kind for kind in events["kind"].cat.categories if kind.startswith("transfer.")}:
        rows = events.index[(events["kind"] == kind) & (events["outcome"] == "done")]
        for place in rows[:: max(1, len(rows) - 1)]:
            for by in (8, -8):
                sizes = events["bytes"].to_numpy(copy=True)
                sizes[place] += by
                changed = tables.events.set_column(tables.events.column_names.index("bytes"), "bytes", [sizes])
                found = [*scenario.problems(run, Frames(RunTables(tables.metrics, tables.rounds, changed)))]
                missed |= set() if any("the codec writes" in each for each in found) else {str(kind)}
    return missed


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SOME)
def test_a_message_of_other_bytes_is_found_for_every_kind(name: str, tmp_path: Path) -> None:
    results = results_of(KINDS[name], tmp_path)
    assert_sound(results)
    assert untested(results) == set()


FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "evaluation in time": ("easter", {"evaluate": {"every": "3 rounds", "costs_time": True}}),
    "blinded, evaluation in time": ("synchronous-blinded", {"evaluate": {"every": "3 rounds", "costs_time": True}}),
    "crashes": ("t-synchronous-bounded", {"timing": timed(LOST)}),
    "pauses": ("fedbcd-sequential", {"timing": timed(RESUMED)}),
    "timing only": ("vimadmm", {"timing_only": True}),
    "by arrays": ("synchronous", {"timing_only": True}),
    "codec downwards": (
        "c_vfl",
        {"codec": {"kind": "by_direction", "up": {"kind": "plain"}, "down": {"kind": "bfloat16"}}},
    ),
    "own batches": ("asynchronous-bounded", {"training__batches": "own"}),
    "single precision": ("vimadmm_j", {"training__dtype": "float32"}),
    "views": ("fedvs", {"record": {"tables": "events", "views": "16 rows"}}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FEATURES)
def test_no_feature_raises_a_false_alarm(name: str, tmp_path: Path) -> None:
    kind, changes = FEATURES[name]
    results = results_of(KINDS[kind], tmp_path, **changes)
    assert_sound(results)
    assert untested(results) == set()


@pytest.mark.slow
def test_bytes_of_clients_that_fedvs_lists_after_a_crash_have_bounds(tmp_path: Path) -> None:
    results = results_of(KINDS["fedvs-partial"], tmp_path, timing=timed(LOST))
    assert_sound(results)
    assert untested(results) <= {"transfer.missing", "transfer.sharers"}
