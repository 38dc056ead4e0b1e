"""Protocols outside the package from the command line: as good a welcome as for built-in ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from outside_worlds import FEEDBACK, PATHS, outside
from ruamel.yaml import YAML
from tiny_worlds import RANDOM_TIMING
from warm import command

from vflsim.plotting import PLOTS
from vflsim.results.read import Results

BOTH = pytest.mark.parametrize("kind", PATHS)
Vflsim = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(kind: str, beside: dict[str, Any], **changes: Any) -> str:
    """Write ``<kind>.yaml``: the protocol through an int8 codec, and others ``beside`` it."""
    said = outside(kind, timing=RANDOM_TIMING, **changes)
    said["protocols"] = {**beside, f"{kind}_int8": {**said["protocols"][kind], "codec": FEEDBACK}}
    YAML().dump(said, Path(f"{kind}.yaml"))
    return f"{kind}.yaml"


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers", "unrendered")
@pytest.mark.parametrize(
    ("kind", "workers"), [pytest.param("two_trip", 2, marks=pytest.mark.slow), ("three_tensors", 1)]
)
def test_check_run_verify_compare_and_plot_know_it(kind: str, workers: int, vflsim: Vflsim) -> None:
    targets = {"test_accuracy": 0.12} | ({"test_accuracy.client-2": 0.12} if kind == "two_trip" else {})
    scenario = write(kind, {"sync": {"kind": "synchronous"}}, seeds=[0, 1], target=targets, stop={"rounds": 4})
    checked = vflsim("check", scenario)
    assert checked.status == 0, checked.err
    assert f"{scenario} is valid" in checked.out
    assert "2 protocols × 2 seeds = 4 runs" in checked.out
    assert f"{kind}_int8 differs: codec" in checked.out
    assert vflsim("run", scenario, "--out", "one", "--workers", workers).status == 0
    assert vflsim("verify", "one").status == 0
    assert f"{kind}_int8" in vflsim("compare", "one").out
    assert vflsim("plot", "one").status == 0
    lacking = {"staleness", "epsilon", "energy", "answers"}  # no embedding is old, none is noisy, nobody draws power
    assert {path.stem for path in Path("one").glob("*.png")} == PLOTS.keys() - lacking
    run = Results.open("one").run(f"{kind}_int8", 1)
    own = {f"test_accuracy.{party}" for party in ("server", "client-1", "client-2", "client-3")}
    assert (own <= set(run.table("metrics").column_names)) is (kind == "two_trip")
    if workers > 1:
        assert vflsim("run", scenario, "--out", "two", "--seeds", "[1]").status == 0
        assert files_of(Path("two", f"{kind}_int8", "seed-1")) == files_of(Path("one", f"{kind}_int8", "seed-1"))


@pytest.mark.slow
@BOTH
def test_a_killed_run_is_resumed_to_the_byte(kind: str, vflsim: Vflsim) -> None:
    slow = {"training__client_optimizer": {"kind": "adam", "lr": 0.001}}
    scenario = write(kind, {}, stop={"rounds": 80}, evaluate={"every": "10 rounds"}, **slow)
    assert vflsim("run", scenario, "--out", "whole", "--checkpoint-every", "off").status == 0
    process = command(Path("errors"), "run", scenario, "--out", "killed", "--checkpoint-every", "10 ms")
    while not (kept := list(Path("killed").rglob("*.checkpoint"))) and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert kept, Path("errors").read_text()
    assert vflsim("run", scenario, "--out", "killed", "--resume").status == 0
    assert files_of(Path("killed")) == files_of(Path("whole"))


def files_of(out: Path) -> dict[str, bytes]:
    """All tables and weights, by path, and run.json without its wall-clock time."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for name in [name for name in files if name.endswith("run.json")]:
        info = json.loads(files[name])
        del info["wall_clock_s"], info["together"]
        files[name] = json.dumps(info).encode()
    return {name: content for name, content in files.items() if name != "manifest.json" and "/." not in f"/{name}"}


# --- mistakes -------------------------------------------------------------------------------------------------------


def check(vflsim: Vflsim, text: str) -> str:
    Path("own.yaml").write_text(text)
    ended = vflsim("check", "own.yaml")
    assert ended.status == 2
    assert "Traceback" not in ended.err
    return ended.err


SCENARIO = """\
name: own
data: {{name: digits, train_rows: 60}}
partition: {{clients: 3, by: columns{active}}}
models:
  client: {{kind: linear, embedding: 4}}
{own}  aggregate: {aggregate}
  server: {{kind: {server}}}
training: {{batch: 20, client_optimizer: {{kind: sgd, lr: 0.1}}, server_optimizer: {{kind: sgd, lr: 0.1}}}}
protocols:
  mine: {{kind: module, path: "{path}"{keys}}}
stop: {{rounds: 2}}
"""
OWN_MODEL = "  active: {kind: linear, embedding: 4}\n"


def text(kind: str, **changes: str) -> str:
    two_trip = kind == "two_trip"
    usual = {
        "active": ", active: true" if two_trip else "", "own": OWN_MODEL if two_trip else "", "keys": "",
        "aggregate": "mean" if two_trip else "sum", "server": "linear", "path": PATHS[kind],
    }  # fmt: skip
    return SCENARIO.format(**{**usual, **changes})


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("three_tensors", {"keys": ", local_stepz: 3"}, ["own.yaml:10", "local_stepz", "local_steps"]),
        ("three_tensors", {"keys": ", local_steps: 0"}, ["own.yaml:10", "local_steps", "at least 1"]),
        ("three_tensors", {"keys": ", rho: many"}, ["own.yaml:10", "rho", "many"]),
        ("three_tensors", {"aggregate": "mean"}, ["own.yaml:10", "has no mean", "aggregate: sum"]),
        ("three_tensors", {"server": "logistic"}, ["own.yaml", "logistic"]),
        ("three_tensors", {"server": "mlp, hidden: [4]"}, ["own.yaml:10", "linear, not mlp"]),
        ("three_tensors", {"active": ", active: true", "own": OWN_MODEL}, ["own.yaml:3", "cannot use the features"]),
        ("two_trip", {"active": "", "own": ""}, ["own.yaml:10", "holds no features", "partition.active: true"]),
        ("two_trip", {"own": ""}, ["own.yaml", "no model to embed them"]),
        ("two_trip", {"aggregate": "max"}, ["own.yaml:11", "not max", "aggregate: mean"]),
        ("two_trip", {"keys": ", mechanism: {kind: gaussian, clip: 1, epsilon: 1, delta: 1e-5}"}, ["mechanism"]),
        ("two_trip", {"path": "outside_protocols.two_trip:OneTrip"}, ["own.yaml:11", "OneTrip does not exist"]),
        ("two_trip", {"path": "outside_protocols.two_trip:Party"}, ["own.yaml:11", "no Protocol", "derive it"]),
        ("two_trip", {"path": "outside_protocols.no_trip:Trip"}, ["own.yaml:11", "no module named", "PYTHONPATH"]),
    ],
)
def test_a_mistake_is_reported_with_file_line_and_remedy(
    kind: str, changes: dict[str, str], words: list[str], vflsim: Vflsim
) -> None:
    printed = " ".join(check(vflsim, text(kind, **changes)).split())
    assert [word for word in words if word not in printed] == [], printed


@pytest.mark.parametrize(
    ("name", "words", "function"),
    [
        ("InCheck", "KeyError: 'width'", "check"),
        ("InCheckData", "TypeError: no features", "check"),
        ("InLearners", "AttributeError: 'Setting' object has no attribute 'nothing'", "learners"),
    ],
)
def test_a_mistake_in_its_code_is_reported_with_the_line_that_failed(
    name: str, words: str, function: str, vflsim: Vflsim
) -> None:
    printed = " ".join(check(vflsim, text("three_tensors", path=f"outside_protocols.broken:{name}")).split())
    assert f"own.yaml:10: protocols.mine: {words}" in printed
    assert re.search(rf"broken\.py:\d+, {function}", printed), printed


@BOTH
def test_without_a_mistake_it_is_valid(kind: str, vflsim: Vflsim) -> None:
    Path("own.yaml").write_text(text(kind))
    assert vflsim("check", "own.yaml").status == 0


def test_a_target_of_a_party_needs_a_protocol_whose_parties_predict(vflsim: Vflsim) -> None:
    printed = check(vflsim, text("three_tensors") + "target: {test_accuracy.client-1: 0.5}\n")
    assert "own.yaml" in printed
    assert "test_accuracy.client-1" in printed
