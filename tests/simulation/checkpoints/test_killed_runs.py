"""Runs that are killed by the system, as processes of their own, and resumed by the command line."""

from __future__ import annotations

import json
import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_worlds import RANDOM_TIMING, raw
from warm import command

PROTOCOLS = {
    "synchronous": {"kind": "synchronous"},
    "bounded": {"kind": "t_synchronous", "t": 2, "max_staleness": 2},
}
ADAM = {"kind": "adam", "lr": 0.01}


def start(scenario: Path, out: Path, *options: str) -> BaseProcess:
    return command(scenario.with_name("errors"), "run", scenario, "--no-report", "--out", out, *options)


def finished(process: BaseProcess, scenario: Path) -> None:
    process.join()
    assert process.exitcode == 0, scenario.with_name("errors").read_text()


def files_of(out: Path) -> dict[str, bytes]:
    """All tables and weights, by path, and run.json without its wall-clock time (so without digests of that page)."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    del files["manifest.json"]
    for name in [name for name in files if name.endswith("run.json")]:
        info = json.loads(files[name])
        del info["wall_clock_s"], info["together"]
        files[name] = json.dumps(info).encode()
    return {name: content for name, content in files.items() if "/." not in f"/{name}"}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, each many times as long as the time between two checkpoints."""
    said = raw(
        PROTOCOLS,
        timing=RANDOM_TIMING,
        stop={"rounds": 100},
        evaluate={"every": "20 rounds"},
        training__client_optimizer=ADAM,
    )
    path = tmp_path_factory.mktemp("killed") / "scenario.yaml"
    YAML().dump(said, path)
    return path


@pytest.mark.slow
def test_runs_killed_five_times_write_the_bytes_of_runs_that_were_not(scenario: Path, tmp_path: Path) -> None:
    finished(start(scenario, tmp_path / "whole", "--checkpoint-every", "off"), scenario)
    pick, out = random.Random(0), tmp_path / "killed"
    for _ in range(5):
        before = newest(out)
        process = start(scenario, out, "--resume", "--checkpoint-every", "20 ms")
        while newest(out) == before and process.is_alive():  # it has begun, and has got somewhere
            time.sleep(0.01)
        time.sleep(pick.uniform(0.0, 0.1))
        process.kill()
        process.join()
    finished(start(scenario, out, "--resume"), scenario)
    assert files_of(out) == files_of(tmp_path / "whole")
    left = [path.parent for path in out.rglob(".seed-*/*.json")]
    assert left
    assert len(left) == len(set(left))  # the newest one of a run stays


def newest(out: Path) -> list[str]:
    """The checkpoints and finished runs that there are."""
    return sorted(str(path) for path in out.rglob("*.json"))


@pytest.mark.slow
def test_a_study_killed_while_it_grows_ends_as_a_fresh_folder(scenario: Path, tmp_path: Path) -> None:
    less, out = ("--set", "stop.rounds=50"), tmp_path / "grown"
    more = (*less, "--seeds", "0:2")
    fresh = start(scenario, tmp_path / "fresh", *more)
    finished(start(scenario, out, *less), scenario)
    process = start(scenario, out, *more, "--checkpoint-every", "20 ms")
    while not any(out.glob("*/.seed-1.checkpoint/*.json")) and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not all((out / name / "seed-1").exists() for name in PROTOCOLS)
    finished(start(scenario, out, *more), scenario)
    finished(fresh, scenario)
    assert files_of(out) == files_of(tmp_path / "fresh")
