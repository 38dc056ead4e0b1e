"""Which runs go to one process together: those of a protocol, by memory and workers, or as the user says."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
from tiny_worlds import raw, tiny

from vflsim.results.sweeps import SweepPage
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.studies import groups
from vflsim.studies.checks.sizes import run_size
from vflsim.studies.engines import Here, Reports, Unit
from vflsim.studies.groups import MOST, common_part, grouped
from vflsim.studies.plan import axes_of, planned
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import choices
from vflsim.studies.runs.spec import StudySpec
from vflsim.studies.study import run_study
from vflsim.studies.sweep import SweepWatcher, run_sweep
from vflsim.vocabulary.execution_options import RunOptions

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


def formed(seeds: int, protocols: Any = "synchronous", timing_only: bool = False, record: str = "rounds",
           **options: Any) -> list[list[tuple[str, int]]]:  # fmt: skip
    """The groups of a study, as (protocol, seed)."""
    scenario = tiny(protocols, seeds=[*range(seeds)], record=record)
    paths = choices(scenario, "auto", timing_only)
    spec = StudySpec(scenario, Path("out"), paths, timing_only, RunOptions.of(**{"device": "cpu", **options}))
    runs = [StudyRun(*run, number, len(spec.runs)) for number, run in enumerate(spec.runs, start=1)]
    alike = [[Unit(spec, run, Watcher()) for run in runs if run.protocol == name] for name in scenario.protocols]
    units = grouped(alike, ScenarioData(scenario))
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


@pytest.mark.parametrize(
    ("change", "together"),
    [
        ("training.client_optimizer.lr=0.3", True),
        ("training.server_optimizer={kind: sgd, lr: 0.3, momentum: 0.9, weight_decay: 0.1}", True),
        ("timing.server.compute=3 ms", True),
        ("constants.delay=4", True),
        ("protocols.fast.t=3", True),
        ("protocols.fast.max_staleness=5", True),
        ("stop={time: 3 s}", True),
        ("protocols.fast.stop={rounds: 3}", True),
        ("seeds=[7]", True),
        ("protocols.wait.training={batch: 10}", True),
        ("training.client_optimizer.kind=adam", False),
        ("training.client_optimizer={kind: sgd, lr: 0.2, momentum: 0.9, nesterov: true}", False),
        ("protocols.fast.training={batch: 10}", False),
        ("training.dtype=float32", False),
        ("training.last_batch=drop", False),
        ("training.sampling=uniform", False),
        ("models.aggregate=sum", False),
        ("models.client.embedding=7", False),
        ("constants.width=9", False),
        ("partition.clients=3", False),
        ("data.train_rows=80", False),
        ("protocols.fast={kind: asynchronous}", False),
        ("evaluate.every=2 rounds", False),
    ],
)
def test_scenarios_that_differ_in_numbers_of_a_program_have_runs_in_common(change: str, together: bool) -> None:
    world = raw({"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}})
    world["constants"] = {"delay": 3, "width": 8}
    world["models"]["server"]["hidden"] = ["width"]
    world["timing"]["clients"][1]["upload_delay"]["mean"] = "(delay*i) ms"
    before, after = (common_part(load(world, changes), "fast") for changes in ([], [change]))
    assert (before == after) is together


def test_protocols_of_another_name_are_apart() -> None:
    scenario = tiny({"a": {"kind": "synchronous"}, "b": {"kind": "synchronous"}})
    assert common_part(scenario, "a") != common_part(scenario, "b")


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


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_groups_of_points_write_what_single_runs_write(workers: int, tmp_path: Path) -> None:
    world = raw(BOTH, seeds=[0, 1], record="rounds", stop={"rounds": 4})
    plan = planned(world, axes_of(world, {"client_optimizer.lr": [0.1, 0.2], "training.batch": [20, 30]}))
    for name, options in (("alone", RunOptions(together=None)), ("groups", RunOptions(workers=workers))):
        assert run_sweep(plan, tmp_path / name, options=options).failures == {}
    assert files(tmp_path / "groups") == files(tmp_path / "alone")
    assert verify_folder(tmp_path / "groups") == []


class Noting:
    """Notes the groups that it executes, by folder and seed, and the folders that are there by then."""

    def __init__(self, root: Path) -> None:
        self._root, self._here = root, Here()
        self.groups: list[list[tuple[str, int]]] = []
        self.there: list[set[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        for unit in units:
            self.groups.append([(each.spec.folder.name, each.run.seed) for each in unit.members])
            self.there.append({path.name for path in self._root.iterdir() if path.is_dir()})
            yield from self._here.carry_out([unit], interrupt)


@pytest.mark.parametrize("together", [2, 4])
def test_a_sweep_opens_only_the_points_that_its_groups_have_room_for(together: int, tmp_path: Path) -> None:
    world = raw("synchronous", seeds=[0, 1], record="rounds", stop={"rounds": 4})
    plan = planned(world, axes_of(world, {"client_optimizer.lr": [0.1, 0.2, 0.3], "training.batch": [20, 30]}))
    engine = Noting(tmp_path / "out")
    run_sweep(plan, tmp_path / "out", options=RunOptions(together=together), engine=engine)
    if together == 2:
        assert [len(there) for there in engine.there] == [1, 2, 3, 4, 5, 6]
        assert all(len({folder for folder, _ in group}) == 1 for group in engine.groups)
        return
    assert engine.groups == [
        [("lr-0.1_batch-20", 0), ("lr-0.1_batch-20", 1), ("lr-0.2_batch-20", 0), ("lr-0.2_batch-20", 1)],
        [("lr-0.1_batch-30", 0), ("lr-0.1_batch-30", 1), ("lr-0.2_batch-30", 0), ("lr-0.2_batch-30", 1)],
        [("lr-0.3_batch-20", 0), ("lr-0.3_batch-20", 1)],
        [("lr-0.3_batch-30", 0), ("lr-0.3_batch-30", 1)],
    ]
    assert [len(there) for there in engine.there] == [2, 4, 5, 6]


def test_an_interrupted_group_of_points_keeps_what_is_written_and_resumes(tmp_path: Path) -> None:
    world = raw("synchronous", seeds=[0], record="rounds", stop={"rounds": 40}, evaluate={"every": "10 rounds"})
    plan = planned(world, axes_of(world, {"stop.rounds": [10, 40, 30]}))

    class Pressing(SweepWatcher):
        def ended(self, step: Any, study: Any) -> None:
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, out, watcher=Pressing())
    assert [value.finished for value in SweepPage.read(out).points] == [True, False, False]
    run_sweep(plan, out, options=RunOptions(resume=True))
    run_sweep(plan, tmp_path / "whole", options=RunOptions(together=None))
    written = {name: text for name, text in files(out).items() if ".checkpoint" not in name}
    assert written == files(tmp_path / "whole")
