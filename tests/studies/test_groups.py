"""Which runs go to one process together: those of a protocol, by memory and workers, or as the user says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_worlds import raw, tiny

from vflsim.results.verify import verify_folder
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.studies import groups
from vflsim.studies.checks.sizes import run_size
from vflsim.studies.engines import Unit
from vflsim.studies.groups import MOST, grouped
from vflsim.studies.plan import axes_of, planned
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import choices
from vflsim.studies.runs.spec import StudySpec
from vflsim.studies.study import run_study
from vflsim.studies.sweep import run_sweep
from vflsim.vocabulary.execution_options import RunOptions

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


def formed(seeds: int, protocols: Any = "synchronous", timing_only: bool = False, record: str = "rounds",
           **options: Any) -> list[list[tuple[str, int]]]:  # fmt: skip
    """The groups of a study, as (protocol, seed)."""
    scenario = tiny(protocols, seeds=[*range(seeds)], record=record)
    paths = choices(scenario, "auto", timing_only)
    spec = StudySpec(scenario, Path("out"), paths, timing_only, RunOptions.of(**{"device": "cpu", **options}))
    runs = [StudyRun(*run, number, len(spec.runs)) for number, run in enumerate(spec.runs, start=1)]
    units = grouped([Unit(spec, run, Watcher()) for run in runs], ScenarioData(scenario))
    return [[(each.run.protocol, each.run.seed) for each in unit.members] for unit in units]


def sizes(*given: Any, **options: Any) -> list[int]:
    return [len(group) for group in formed(*given, **options)]


def test_runs_of_a_protocol_are_a_group_and_groups_follow_in_the_order_of_their_first_run() -> None:
    assert formed(3, BOTH) == [[("wait", 0), ("wait", 1), ("wait", 2)], [("fast", 0), ("fast", 1), ("fast", 2)]]
    assert formed(3, BOTH, workers=2) == [
        [("wait", 0)], [("fast", 0)], [("wait", 1), ("wait", 2)], [("fast", 1), ("fast", 2)]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "workers", "expected"),
    [(10, 1, [10]), (10, 2, [5, 5]), (10, 3, [3, 3, 4]), (2, 4, [1, 1]), (1, 2, [1]), (40, 1, [20, 20])],
)
def test_every_worker_has_as_many_groups_of_a_protocol(seeds: int, workers: int, expected: list[int]) -> None:
    assert sizes(seeds, workers=workers) == expected


def test_the_user_says_how_many_or_none() -> None:
    assert sizes(7, together=3) == [2, 2, 3]
    assert sizes(7, together="40", workers=2) == [7]
    assert sizes(3, together="off") == sizes(3, together=1) == [1, 1, 1]


@pytest.mark.parametrize("how", [{"timing_only": True}, {"eager": True}, {"protocols": "few_shot"}], ids=str)
def test_runs_that_no_program_trains_stay_alone(how: dict[str, Any]) -> None:
    assert sizes(3, **how) == [1, 1, 1]


def test_runs_on_a_cluster_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.vocabulary.execution_options.find_spec", lambda _: object())
    assert sizes(3, engine="ray") == [1, 1, 1]


def test_groups_under_way_take_a_quarter_of_the_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny(seeds=[0], record="rounds")
    data = ScenarioData(scenario).of(scenario.training_of("synchronous"))
    size = run_size(scenario, "synchronous", setting(scenario, "synchronous", data))
    own = size.bytes - size.parts["features"]
    monkeypatch.setattr(groups, "machine_memory", lambda: 4 * 6 * own + 1.0)
    assert sizes(12) == [6, 6]
    assert sizes(12, workers=2) == [3, 3, 3, 3]
    monkeypatch.setattr(groups, "machine_memory", lambda: float("inf"))
    assert sizes(MOST + 1) == [16, 17]
    monkeypatch.setattr("vflsim.vocabulary.execution_options.cuda_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(total_memory=4 * 2 * own + 1))
    assert sizes(4, device="cuda") == [2, 2]


# --- studies ----------------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    suffixes = (".parquet", ".safetensors", "scenario.yaml", "summary.md")
    found = (path for path in sorted(folder.rglob("*")) if path.name.endswith(suffixes))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_of_groups_writes_what_one_of_single_runs_writes(workers: int, tmp_path: Path) -> None:
    scenario, began = tiny(BOTH, seeds=[0, 1, 2], record="rounds"), list[tuple[str, int]]()

    class Noting(Watcher):
        def began(self, run: StudyRun) -> None:
            began.append((run.protocol, run.seed))

    run_study(scenario, tmp_path / "alone", options=RunOptions(together=None))
    done = run_study(scenario, tmp_path / "groups", options=RunOptions(workers=workers), watcher=Noting())
    assert done.failures == {}
    assert sorted(began) == sorted((name, seed) for name in BOTH for seed in (0, 1, 2))
    if workers == 1:
        assert began == [(name, seed) for name in BOTH for seed in (0, 1, 2)]
    assert files(tmp_path / "groups") == files(tmp_path / "alone")
    assert verify_folder(tmp_path / "groups") == []


def test_points_of_a_sweep_link_the_shared_runs_of_groups(tmp_path: Path) -> None:
    world = raw(BOTH, seeds=[0, 1], record="rounds", stop={"rounds": 4})
    plan = planned(world, axes_of(world, {"fast.t": [1, 3]}))
    for name, together in (("alone", None), ("groups", 2)):
        assert run_sweep(plan, tmp_path / name, options=RunOptions(together=together)).failures == {}
    assert files(tmp_path / "groups") == files(tmp_path / "alone")
    assert verify_folder(tmp_path / "groups") == []
