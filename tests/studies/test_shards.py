"""Units in shares: planned, computed by processes that do not know of each other, and collected into one folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from warm import command

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.studies.plan import SweepPlan, checked_point
from vflsim.studies.shards import Shard, dealt
from vflsim.studies.units import PlanHead, UnitPlan

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 4, by: columns}
models: {client: {kind: linear, embedding: 6}, aggregate: mean, server: {kind: mlp, hidden: [8]}}
training: {batch: 20, client_optimizer: {kind: sgd, lr: 0.2}, server_optimizer: {kind: sgd, lr: 0.1}}
timing: {server: {compute: 1 ms}, clients: {compute: {kind: exponential, mean: 2 ms}}}
protocols: {wait: {kind: synchronous}, async: {kind: asynchronous}}
stop: {rounds: 4}
evaluate: {every: 2 rounds}
seeds: 0:10
"""
DIVERGING = "protocols.wait.training={server_optimizer: {kind: sgd, lr: 1e+30}}"
WALL_CLOCK = "wall_clock_s"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)


def files(folder: Path) -> dict[str, object]:
    """Every file's bytes; of pages with wall-clock figures all else."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "manifest.json":
            found[path.name] = sorted(json.loads(path.read_text())["files"])
        elif path.is_file():
            facts = json.loads(path.read_text()) if path.name == "run.json" else None
            same = {WALL_CLOCK: 0, "together": None}
            found[path.relative_to(folder).as_posix()] = path.read_bytes() if facts is None else facts | same
    return found


def planned(vflsim: Callable[..., Ended], *argv: str) -> Path:
    ended = vflsim("plan", "tiny.yaml", *argv)
    assert ended.status == 0, ended.err
    Path("units.jsonl").write_text(ended.out)
    return Path("units.jsonl")


@pytest.mark.slow
def test_twenty_units_by_three_processes_in_three_folders_are_collected_as_one_process_writes_them(
    vflsim: Callable[..., Ended],
) -> None:
    file = planned(vflsim, "--set", DIVERGING)
    assert len(file.read_text().splitlines()) == 21
    shards = [command(Path(f"{k}.err"), "work", file, "--shard", f"{k}/3", "--out", "shards") for k in (1, 2, 3)]
    assert vflsim("run", "tiny.yaml", "--set", DIVERGING, "--out", "one").status == 1
    for k, shard in enumerate(shards, start=1):
        shard.join()
        assert shard.exitcode == 1, Path(f"{k}.err").read_text()
    assert sorted(path.name for path in Path("shards").iterdir()) == [f"shard-{k}-of-3" for k in (1, 2, 3)]
    ended = vflsim("collect", file, "shards", "--out", "all")
    assert ended.status == 1  # as run ends where runs diverge
    assert ended.err.count("error: wait, seed ") == 10
    assert files(Path("all")) == files(Path("one"))
    assert len([name for name in files(Path("all")) if name.endswith("metrics.parquet")]) == 20


@pytest.mark.slow
def test_collect_names_what_is_missing_and_the_command_that_computes_it(vflsim: Callable[..., Ended]) -> None:
    file = planned(vflsim, "--timing-only", "--seeds", "0:3")
    for k in (1, 2):
        assert vflsim("work", file, "--shard", f"{k}/2", "--out", "shards").status == 0
    shutil.rmtree("shards/shard-1-of-2/wait/seed-1")
    changed = next(Path("shards/shard-2-of-2").glob("*/seed-*/rounds.parquet"))
    changed.write_bytes(changed.read_bytes()[:-1])
    ended = vflsim("collect", file, "shards", "--out", "all")
    assert ended.status == 2
    assert "2 of 6 units are missing\n" in ended.err
    assert "\n    wait/seed-1: missing (shard 1/2)\n" in ended.err
    assert "rounds.parquet has changed since it was written" in ended.err
    commands = [line.strip() for line in ended.err.splitlines() if line.strip().startswith("vflsim work")]
    assert sorted(commands) == [f"vflsim work units.jsonl --shard {k}/2 --out shards" for k in (1, 2)]
    assert not Path("all").exists()
    for each in commands:
        again = vflsim(*each.split()[1:])
        assert again.status == 0
        assert "3 runs: 2 kept from before, 1 run in" in again.out
    assert vflsim("collect", file, "shards", "--out", "all").status == 0
    assert vflsim("run", "tiny.yaml", "--timing-only", "--seeds", "0:3", "--out", "one").status == 0
    assert files(Path("all")) == files(Path("one"))


def test_collect_names_results_of_other_versions(vflsim: Callable[..., Ended]) -> None:
    file = planned(vflsim, "--timing-only", "--seeds", "0:1")
    assert vflsim("work", file, "--shard", "1/1", "--out", "shards").status == 0
    page = Path("shards/shard-1-of-1/wait/seed-0/run.json")
    facts = json.loads(page.read_text())
    facts["versions"]["torch"] = "1.0"
    page.write_text(json.dumps(facts))
    Path("shards/shard-1-of-1/manifest.json").unlink()
    ended = vflsim("collect", file, "shards", "--out", "all")
    assert ended.status == 0
    assert "warning: 1 of 2 with torch 1.0 (now " in ended.out


@pytest.mark.parametrize("total", [1, 2, 3, 4, 7])
def test_every_unit_belongs_to_one_shard_and_shards_mix_protocols(total: int) -> None:
    plan = UnitPlan.of(PlanHead(timing_only=True), SweepPlan((), (checked_point(load(SCENARIO), True),), True))
    shares = [Shard(number, total).units(plan) for number in range(1, total + 1)]
    assert sorted(unit.folder for share in shares for unit in share) == sorted(unit.folder for unit in plan.units)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all({unit.protocol for unit in share} == {"wait", "async"} for share in shares)
    assert all(unit in shares[own.number - 1] for unit, own in zip(plan.units, dealt(plan, total), strict=True))


def test_the_shard_is_the_task_of_a_slurm_array() -> None:
    task = {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10"}
    assert Shard.of(None, task) == Shard(3, 3)
    assert Shard.of(None, {**task, "SLURM_ARRAY_TASK_STEP": "2"}) == Shard(2, 3)
    assert Shard.of("03/20", task) == Shard(3, 20)
    assert Shard(3, 20).folder == "shard-03-of-20"
    for text, environment in (
        ("0/3", {}),
        ("4/3", {}),
        ("3", {}),
        (None, {}),
        (None, {**task, "SLURM_ARRAY_TASK_ID": "15"}),  # the array has gaps
        (None, {"SLURM_ARRAY_TASK_ID": "2"}),
    ):
        with pytest.raises(ScenarioError, match=r"there is no shard|which share"):
            Shard.of(text, environment)


def _line(file: Path, number: int, changes: dict[str, Any]) -> None:
    """Change keys of a line; ``text`` is the scenario's in the head."""
    lines = file.read_text().splitlines()
    line = json.loads(lines[number])
    if "text" in changes:
        line["studies"][0]["text"] = changes["text"]
        digest = hashlib.sha256(changes["text"].encode()).hexdigest()
        lines[1:] = [json.dumps({**json.loads(each), "scenario": digest}) for each in lines[1:]]
        changes = {}
    lines[number] = json.dumps({**line, **changes})
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("number", "changes", "what"),
    [
        (0, {"plan": 2}, "units.jsonl:1: is no line of a plan: plan: Input should be 1"),
        (0, {"threads": 0}, "units.jsonl:1: is no line of a plan: threads"),
        (0, {"text": "name: other\n"}, "units.jsonl:1: the study: scenario"),
        (0, {"text": SCENARIO}, "units.jsonl:1: the study: the text is no resolved scenario"),
        (0, {"studies": [{"folder": "../up", "text": ""}]}, "units.jsonl:1: is no line of a plan: studies.0.folder"),
        (0, {"studies": []}, "units.jsonl:2: 'wait/seed-0' is no folder of wait with seed 0 in a study"),
        (1, {"folder": "../wait/seed-0"}, "units.jsonl:2: '../wait/seed-0' is no folder of wait with seed 0"),
        (2, {"folder": "/tmp/async/seed-0"}, "units.jsonl:3: '/tmp/async/seed-0' is no folder of async with seed 0"),
        (2, {"protocol": "../wait"}, "units.jsonl:3: is no line of a plan: protocol"),
        (2, {"protocol": "other", "folder": "other/seed-0"}, "units.jsonl: the scenario has no run other/seed-0"),
        (2, {"seed": 77, "folder": "async/seed-77"}, "units.jsonl: the scenario has no run async/seed-77"),
        (2, {"seed": True}, "units.jsonl:3: is no line of a plan: seed"),
        (2, {"scenario": "0" * 64}, "units.jsonl:3: 'async/seed-0' is no folder"),
        (2, {"more": 1}, "units.jsonl:3: is no line of a plan: more"),
        (2, {"protocol": "wait", "folder": "wait/seed-0"}, "units.jsonl: wait/seed-0 stands twice"),
    ],
)
def test_a_damaged_plan_is_one_message_with_its_line(
    number: int, changes: dict[str, Any], what: str, vflsim: Callable[..., Ended]
) -> None:
    file = planned(vflsim, "--timing-only", "--seeds", "0:2")
    _line(file, number, changes)
    before = sorted(path.name for path in Path().iterdir())
    ended = vflsim("work", file, "--shard", "1/1", "--out", "out")
    assert ended.status == 2
    assert f"error: {what}" in ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.slow
def test_a_sweep_in_shards_is_collected_as_one_process_writes_it(vflsim: Callable[..., Ended]) -> None:
    argv = ("--over", "training.batch=10,20", "--set", "protocols.wait.training={batch: 25}")
    argv = (*argv, "--timing-only", "--seeds", "0:3")
    file = planned(vflsim, *argv)
    Path("over.yaml").write_text("training.batch: 10, 20\n")
    assert vflsim("plan", "tiny.yaml", "--over-file", "over.yaml", *argv[2:]).out == file.read_text()
    assert len(file.read_text().splitlines()) == 1 + 9  # wait does not depend on the batch of the others
    for k in (1, 2):
        ended = vflsim("work", file, "--shard", f"{k}/2", "--out", "shards")
        assert ended.status == 0, ended.err
    ended = vflsim("collect", file, "shards", "--out", "all")
    assert ended.status == 0, ended.err
    assert vflsim("sweep", "tiny.yaml", *argv, "--out", "one").status == 0
    assert files(Path("all")) == files(Path("one"))
    assert len(list(Path("all").glob("*/*/seed-*/run.json"))) == 12
    shutil.rmtree("shards/shard-1-of-2/batch-20")
    ended = vflsim("collect", file, "shards", "--out", "again")
    assert ended.status == 2
    assert "batch-20/async/seed-" in ended.err
    assert "compute them:\n    vflsim work units.jsonl --shard 1/2 --out shards\n" in ended.err


def test_a_run_that_lists_files_outside_its_folder_is_not_collected(vflsim: Callable[..., Ended]) -> None:
    file = planned(vflsim, "--timing-only", "--seeds", "0:1")
    assert vflsim("work", file, "--shard", "1/1", "--out", "shards").status == 0
    page = Path("shards/shard-1-of-1/wait/seed-0/run.json")
    facts = json.loads(page.read_text())
    facts["files"]["../../../../tiny.yaml"] = facts["files"]["rounds.parquet"]
    page.write_text(json.dumps(facts))
    Path("shards/shard-1-of-1/manifest.json").unlink()
    ended = vflsim("collect", file, "shards", "--out", "all")
    assert ended.status == 2
    assert "'../../../../tiny.yaml' is no file of a run" in ended.err


def test_a_shard_of_another_plan_is_refused_before_any_of_its_runs(vflsim: Callable[..., Ended]) -> None:
    over = ("--over", "training.batch=16,32", "--seeds", "0:1")
    assert vflsim("work", planned(vflsim, *over), "--shard", "1/1", "--out", "shards").status == 0
    first, second = (Path("shards/shard-1-of-1") / name for name in ("batch-16", "batch-32"))
    shutil.rmtree(first)
    before = files(second)
    ended = vflsim("work", planned(vflsim, *over, "--set", "stop.rounds=2"), "--shard", "1/1", "--out", "shards")
    assert ended.status == 2
    assert "another scenario, which cannot be resumed" in ended.err
    assert not first.exists()
    assert files(second) == before
